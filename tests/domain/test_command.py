"""The grammar of slash commands (runtime spec 7.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.command import Command, parse_command

COMMANDS = {
    "/a": Command("a", ""),
    "/a-b:c x": Command("a-b:c", "x"),
    "  \n/a  x  y \n": Command("a", "x  y"),
    "/a\nb": Command("a", "b"),
    "/a\tb": Command("a", "b"),
    "/A_1:b-2:c3 /usr": Command("A_1:b-2:c3", "/usr"),
    "/-": Command("-", ""),
}
TEXTS = [
    "", " ", "/", "//", "/ a", "//a", "a /b", "/usr/bin", "/usr/bin/env x", "/a.b", "/path.txt", "/a:", "/a::b", "/:a",
    "/é", "/a,", "/a: b", "\\/a",
]  # fmt: skip


@pytest.mark.spec("R-125")
def test_command_and_text_are_distinguished() -> None:
    assert {text: parse_command(text) for text in COMMANDS} == COMMANDS
    assert [text for text in TEXTS if parse_command(text) is not None] == []


@given(st.from_regex(r"[A-Za-z0-9_-]+(:[A-Za-z0-9_-]+)*", fullmatch=True), st.text())
def test_command_name_and_arguments_are_parsed(name: str, arguments: str) -> None:
    assert parse_command(f"/{name} {arguments}") == Command(name, arguments.strip())
