"""What each entry point loads: deterministic stand-ins for start-up time (performance spec 4)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place

LOADED = Path(__file__).with_name("loaded.py")

NEVER_AT_START = (
    "openai", "anthropic", "google.genai", "httpx", "aiohttp", "httptools", "fastmcp", "mcp", "acp", "rich",
    "prompt_toolkit", "jsonschema", "loguru", "yaml", "starlette", "jinja2", "re2", "opentelemetry", "logfire",
)  # fmt: skip
"""What the handshake does without, whatever is installed."""


def loaded(place: Place, *arguments: str) -> set[str]:
    """The modules that are loaded when the command has done its work, or the handshake is answered."""
    done = subprocess.run(
        [sys.executable, str(LOADED), *arguments],
        cwd=place.work,
        env=place.full_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return set(json.loads(done.stderr.splitlines()[-1]))


def among(modules: set[str], *packages: str) -> set[str]:
    """Those of `packages` that were loaded, in whole or in part."""
    return {package for package in packages if any(f"{name}.".startswith(f"{package}.") for name in modules)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place whose model is a provider over HTTP, so that nothing is spared for want of one."""
    return Place(tmp_path).provider("http://127.0.0.1:9/v1")


def test_the_handshake_is_answered_before_anything_heavy_is_loaded(place: Place) -> None:
    modules = loaded(place, "--wire")
    assert "kimi.interfaces.wire.server" in modules
    assert among(modules, *NEVER_AT_START) == set()
    assert among(modules, "importlib.metadata", "email") == set(), "the search for plugins is back"
    assert len(modules) <= 415, sorted(modules)


def test_the_handshake_with_an_editor_is_answered_without_the_models_of_its_library(place: Place) -> None:
    modules = loaded(place, "acp")
    assert "kimi.interfaces.acp.transport.sdk" in modules
    assert among(modules, *NEVER_AT_START) == set()
    assert len(modules) <= 450, sorted(modules)


@pytest.mark.spec("T-141")
@pytest.mark.parametrize("arguments", [("--version",), ("-V",), ("--help",), ("info",), ("info", "--json")])
def test_quick_commands_load_neither_the_container_nor_mcp(place: Place, arguments: tuple[str, ...]) -> None:
    modules = loaded(place, *arguments)
    assert among(modules, "dependency_injector", "fastmcp", *NEVER_AT_START) == set()
    unneeded = among(modules, "kimi.infrastructure", "kimi.application.conversation.conversation", "kimi.domain.events")
    assert unneeded == set()


@pytest.mark.parametrize("arguments", [("--version",), ("-V",), ("info",), ("info", "--json")])
def test_version_option_loads_few_modules(place: Place, arguments: tuple[str, ...]) -> None:
    bare = loaded_by_nothing(place)
    modules = loaded(place, *arguments)
    assert among(modules, "typer", "click", "pydantic", "anyio", "asyncio", "kimi.application", "kimi.domain") == set()
    assert len(modules - bare) <= 12, sorted(modules - bare)


def loaded_by_nothing(place: Place) -> set[str]:
    """What the interpreter and the measuring itself load."""
    code = "import json, os, sys, threading, platform; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env=place.full_environ(), stdout=subprocess.PIPE, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.spec("R-454")
def test_a_turn_loads_nothing_for_spans_unless_they_are_enabled(place: Place) -> None:
    place.script("text: ok")
    modules = loaded(place, "--print", "--prompt", "go")
    assert "kimi.application.conversation.event_stream" in modules
    assert among(modules, "opentelemetry", "kimi.infrastructure.observability") == set()


@pytest.mark.spec("R-364")
def test_the_first_page_for_a_browser_waits_for_nothing_of_conversations() -> None:
    """What the process imports until it serves the page; the rest follows while the page is on its way."""
    until_served = "import kimi.interfaces.cli.web, kimi.interfaces.cli.start, kimi.interfaces.web.run; "
    served = f"{until_served}import kimi.interfaces.web.server; import sys, json; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", served], capture_output=True, timeout=30, check=True)
    modules: set[str] = set(json.loads(done.stdout))
    assert "aiohttp.web" in modules
    late = (
        "dependency_injector", "kimi.application.conversation.conversation", "kimi.interfaces.bootstrap.opening",
        "kimi.interfaces.web.endpoints", "kimi.interfaces.web.sessions.hosted_session",
    )  # fmt: skip
    assert among(modules, *late) == set()
