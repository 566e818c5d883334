"""What importing the public face loads: programs that embed the agent start as fast as before there was more of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import kimi.interfaces.embed as embed

HEAVY = (
    "aiohttp", "fastmcp", "mcp", "rich", "prompt_toolkit", "jsonschema", "yaml", "jinja2", "re2", "typer",
    "kimi.infrastructure", "kimi.interfaces.wire", "kimi.interfaces.acp", "kimi.interfaces.print",
)  # fmt: skip


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded by the code, and not by the interpreter."""
    report = (
        f"import sys; before = set(sys.modules)\n{code}\nimport json; print(json.dumps([*set(sys.modules) - before]))"
    )
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_little_and_nothing_heavy() -> None:
    modules = loaded_by("import kimi.interfaces.embed")
    assert [name for name in HEAVY if any(f"{one}.".startswith(f"{name}.") for one in modules)] == []
    own = [name for name in modules if name.startswith("kimi.")]
    assert len(own) <= 119, "as many as before there was `open_agent`"


def test_names_that_are_loaded_later_are_there_and_others_are_not() -> None:
    assert [name for name in embed.__all__ if not hasattr(embed, name)] == []
    assert embed.__all__ == sorted(embed.__all__, key=lambda name: (name.islower(), name))
    with pytest.raises(AttributeError, match="no_such_name"):
        embed.no_such_name  # noqa: B018
