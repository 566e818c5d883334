"""The code in the pages: shell lines run, other commands exist, programs are programs, references are up to date.

A line of a shell block runs with the scripted model, unless `_NOT_RUN` says what it needs. Of the others, and of those
in the text, the options are looked up.

What the longer examples do is tested where their subject is: `test_demo.py`, `tests/interfaces/test_embed.py`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import cast

import pytest
from scripts.reference import write_configuration_reference, write_tools_reference, write_wire_reference
from typer.core import TyperGroup
from typer.main import get_command

from kimi.domain.events.event import EVENT_TYPES
from kimi.interfaces.cli.app import app
from tests.support.program.wire_process import Place

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "spec" not in path.parts),
]
_COMMAND = re.compile(r"^(?:\$ |[A-Z_]+=\S* )*(?:uv run |uvx --from kimi-wire )?(kimi(?:-cli)? .+)$")
FAST = '[models.fast]\nprovider = "p"\nmodel = "fast-model"\nmax_context_size = 100000\n[models.m]'
_REST = re.compile(r"\s(?:#|\||<|>|;|&&).*$")


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def indented(page: Path) -> list[str]:
    """The lines of indented code."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def commands() -> list[tuple[str, str]]:
    """The commands of this program in the pages, without what a shell does with them. A synopsis is none."""
    found: dict[str, str] = {}
    for page in PAGES:
        lines = [line for block in blocks(page, "sh", "console") for line in block.splitlines()] + indented(page)
        for line in lines:
            matched = _COMMAND.match(line)
            if matched and not re.search(r"\[|\.\.\.|…|\b[A-Z]{2,}\b(?!_)", _REST.sub("", matched[1])):
                found.setdefault(_REST.sub("", matched[1]).strip(), page.name)
    return [(page, command) for command, page in found.items()]


_NOT_RUN = re.compile(
    r"kimi login|kimi setup +#|team.json|kimi --sandbox [a-z-]+ +#|"  # a dialogue, or the shell: for a terminal
    r"--ray|conformance|kimi-wire|"  # a cluster, minutes, the registry
    r"kimi web|kimi acp|--wire"  # they end when their client does
)


def shell_lines() -> list[tuple[str, str]]:
    """The lines of shell blocks that can be run as they stand, with their redirections and pipes."""
    found: dict[str, str] = {}
    for page in PAGES:
        lines = [line for block in blocks(page, "sh", "console") for line in block.splitlines()] + indented(page)
        for line in (line.removeprefix("$ ").removeprefix("uv run ") for line in lines):
            synopsis = re.search(r"\[|\.\.\.|…|─|\b[A-Z]{2,}\b(?!_)", line.partition(" #")[0].partition("=")[2] or line)
            if re.match(r"(?:[A-Z_]+=\S* )*kimi ", line) and not synopsis and not _NOT_RUN.search(line):
                found.setdefault(line, page.name)
    return [(page, line) for line, page in found.items()]


def test_there_are_commands_in_the_pages() -> None:
    assert len(commands()) > 15
    assert len(shell_lines()) > 12


@pytest.mark.parametrize(("page", "line"), shell_lines())
def test_a_shell_line_of_a_page_runs(place: Place, page: str, line: str) -> None:
    place.script(*["text: ok"] * 3)
    programs = place.root / "programs"
    programs.mkdir()
    for name, module in (("kimi", "kimi"), ("jq", "json.tool --json-lines #")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    (place.work.parent / "site").mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "-C"]
    shop = str(place.work.parent / "shop")
    for words in (["init", "-qb", "main", shop], [*git[1:], shop, "commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run(["git", *words], check=True, timeout=20)
    catalogue, tasks = (blocks(ROOT / "docs" / name, "json")[0] for name in ("setup.md", "batch.md"))
    for name, text in (("tasks.jsonl", tasks), ("task.md", "hi"), ("models.json", catalogue)):
        (place.work / name).write_text(text, encoding="utf-8")
    config = place.share / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("[models.m]", FAST, 1), encoding="utf-8")
    environ = place.full_environ() | {"PATH": f"{programs}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": "sk-none"}
    command = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(command, cwd=place.work, env=environ, capture_output=True, timeout=50, check=False)
    assert done.returncode == 0, (page, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.name)
def test_a_script_in_a_page_can_be_parsed(page: Path) -> None:
    for block in blocks(page, "sh"):
        checked = subprocess.run(["sh", "-n"], input=block.encode(), capture_output=True, timeout=10, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")


_GROUPS = ("sessions", "plugin", "mcp")
_COMMANDS = cast("TyperGroup", get_command(app)).commands


def named_options() -> dict[tuple[str, ...], dict[str, str]]:
    """The options that texts and synopses give each command, with the page that does."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for page in PAGES:
        if page.parent.name == "contributing":
            continue  # its commands are examples, which the reader adds
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        lines = [*re.findall(r"`(kimi [^`]+)`", text), *indented(page)]
        for line in (_REST.sub("", re.sub(r"[\[\]|]", " ", line.partition(" -- ")[0])) for line in lines):
            command: tuple[str, ...] = ()
            for word in line.split()[1:] if line.startswith("kimi ") else ():
                if word.startswith("--"):
                    found.setdefault(command, {}).setdefault(word.partition("=")[0].rstrip(",."), page.name)
                elif re.fullmatch("[a-z]+", word) and (word in _COMMANDS if not command else command[-1] in _GROUPS):
                    command = (*command, word)
    return found


@pytest.mark.parametrize(("command", "options"), named_options().items(), ids=lambda value: str(value)[:40])
def test_options_in_a_text_exist(place: Place, command: tuple[str, ...], options: dict[str, str]) -> None:
    listed = place.run(*command, "--help").stdout.decode()
    known = set(re.findall(r"--[a-z][a-z-]*", listed))
    assert {option: page for option, page in options.items() if option not in known} == {}


def test_scripts_that_the_pages_name_exist() -> None:
    for page in PAGES:
        named = re.findall(r"(?:python |`)((?:\.ci|scripts)/[\w.-]*\w)(?! install)", page.read_text("utf-8"))
        assert [name for name in named if not (ROOT / name).exists()] == [], page.name


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_command_of_a_page_has_options_that_exist(place: Place, page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    if "--" in words:
        words = words[: words.index("--")]
    (place.work / "team.json").write_text("{}")
    answered = place.run(*words, "--help")
    assert answered.returncode == 0, (page, answered.stderr.decode())
    assert b"Usage" in answered.stdout


PROGRAMS = [page for page in PAGES if blocks(page, "python") and page.parent.name != "contributing"]
"""The pages with programs; those of the walks have pieces of the modules that `tests/architecture` follows."""


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_python_in_a_page_can_be_parsed(page: Path) -> None:
    for block in blocks(page, "python"):
        assert ast.parse(textwrap.dedent(block)).body


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml", "json")], ids=lambda page: page.name)
def test_data_in_a_page_can_be_read(page: Path) -> None:
    for block in blocks(page, "toml"):
        assert tomllib.loads(block)
    for block in blocks(page, "json"):
        is_whole = block.startswith(("{\n", "[\n")) or "mcpServers" in block
        values = [block] if is_whole else block.splitlines()
        assert [json.loads(value) for value in values]


def test_the_references_name_every_key_tool_and_message() -> None:
    keys, tools, messages = write_configuration_reference(), write_tools_reference(), write_wire_reference()
    assert "| `user_input` | string or list of [ContentPart](#contentpart) |  |" in messages
    assert {f"## {name}" for name in EVENT_TYPES.values()} <= set(messages.splitlines())
    headings = {line.removeprefix("## ").lower() for line in messages.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\(#(\w+)\)", messages)) <= headings
    assert "| `compaction_trigger_ratio` | number, at least 0.5 and at most 0.99 | `0.85` |" in keys
    assert "## `providers.<name>.oauth`" in keys
    assert {"## Shell\n", "## StrReplaceFile\n"} <= set(tools.splitlines(keepends=True))
