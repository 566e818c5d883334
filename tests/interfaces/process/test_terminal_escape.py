"""Text that must not drive a terminal."""

from __future__ import annotations

import json
import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_json, escape_line, escape_text
from tests.support.shown.attacks import TERMINAL_CONTROL, TERMINAL_SEQUENCES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("[x] [/x] {…} 100% \\n", "[x] [/x] {…} 100% \\n"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("50%\r60%\r\n", "50%\\r60%\n"),
        ("rm \u202etxt.exe", "rm \\u202etxt.exe"),
        ("naïve 日本 👩‍💻", "naïve 日本 👩‍💻"),
    ],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_text(text) == shown


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert all(unicodedata.category(char) != "Cc" or char in "\t\n" for char in escape_text(text))
    assert escape_text(escape_text(text)) == escape_text(text)


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_line_is_one_line_of_limited_length(text: str, limit: int) -> None:
    line = escape_line(text, limit)
    assert len(line) <= limit
    assert not any(unicodedata.category(char) == "Cc" for char in line)


def test_long_line_ends_with_an_ellipsis() -> None:
    assert escape_line("one\n two  three", 9) == "one two …"


@pytest.mark.spec("R-239")
@pytest.mark.parametrize("sequence", TERMINAL_SEQUENCES, ids=ascii)
def test_messages_for_the_person_cannot_control_the_terminal(sequence: str) -> None:
    reading, writing = os.pipe()
    write_stderr(f"No such file: a{sequence}b\n", writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        written = stream.read().decode()
    assert written.startswith("No such file: a\\")
    assert not TERMINAL_CONTROL.search(written)


@given(st.text())
def test_json_for_a_terminal_means_the_same(text: str) -> None:
    line = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(escape_json(line)) == {"text": text}
