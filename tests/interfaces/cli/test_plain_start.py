"""What is read without the parser is read as the parser reads it, or left to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.flags import Flags
from kimi.interfaces.cli.app import run
from kimi.interfaces.cli.plain_start import parse_plain_start


def parsed(arguments: Sequence[str]) -> Flags:
    """What the parser hands on; it must not refuse the line."""
    seen: list[Flags] = []

    def start(flags: Flags) -> int:
        seen.append(flags)
        return 0

    assert run(arguments, start) == 0
    return seen[0]


@pytest.mark.spec("R-330")
@pytest.mark.parametrize(
    "line",
    [
        "acp",
        "--yolo acp",
        "--wire",
        "--yolo --edits --plan --afk --wire",
        "--session 1f-2 --work-dir . --wire --model some --thinking --yolo",
        "--work-dir /tmp --wire --no-thinking",
        "--wire --auto-approve --work-dir //tmp/../tmp/",
    ],
)
def test_lines_of_hosts_have_the_flags_that_the_parser_finds(line: str) -> None:
    assert parse_plain_start(line.split()) == parsed(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--yolo",
        "--wire --wire",
        "--yolo --yolo --wire",
        "acp --yolo",
        "--wire acp",
        "--wire --yol",
        "--wire --session",
        "--wire --session --yolo",
        "--wire --session a/b",
        "--wire --work-dir /nowhere/at/all",
        "--wire --work-dir /dev/null",
        "--wire --thinking --no-thinking",
        "--wire --session=x",
        "--wire --print",
    ],
)
def test_other_lines_and_mistakes_are_left_to_the_parser(line: str) -> None:
    assert parse_plain_start(line.split()) is None


_WORDS = ("--wire", "acp", "--yolo", "--thinking", "--no-thinking", "--session", "--model", "--work-dir", "--plan")
_VALUES = ("x", "acp", ".", "", " ", " x", "-x", "--", "--wire", "/", "a=b", "é")


@given(st.lists(st.sampled_from((*_WORDS, *_VALUES)), max_size=7))
def test_no_line_is_read_otherwise_than_by_the_parser(arguments: list[str]) -> None:
    flags = parse_plain_start(arguments)
    assert flags is None or flags == parsed(arguments)


def test_start_in_a_directory_that_is_gone_is_left_to_the_parser(tmp_path: Path) -> None:
    before = os.getcwd()
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
        assert parse_plain_start(["acp"]) is None
    finally:
        os.chdir(before)
