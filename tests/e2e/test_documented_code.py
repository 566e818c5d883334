"""The code in the pages: commands are accepted as they stand, programs are programs, references are up to date.

What the longer examples do is tested where their subject is: `test_demo.py`, `tests/interfaces/test_embed.py`.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
import tomllib
from pathlib import Path

import pytest
from scripts.reference import write_configuration_reference, write_tools_reference, write_wire_reference

from kimi.domain.events.event import EVENT_TYPES
from tests.support.program.wire_process import Place

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "spec" not in path.parts),
]
_COMMAND = re.compile(r"^(?:\$ |[A-Z_]+=\S* )*(?:uv run |uvx --from kimi-wire )?(kimi(?:-cli)? .+)$")
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


def test_there_are_commands_in_the_pages() -> None:
    assert len(commands()) > 15


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
