"""What is approved is shown without hidden characters."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.tools.tool import BriefBlock, DiffBlock, ShellBlock, TodoBlock, TodoItem
from kimi.domain.tools.visible_text import HIDDEN_NOTE, fold_label, reveal_blocks, reveal_hidden, reveal_hidden_line
from tests.support.shown.attacks import HIDDEN_IN_APPROVALS

PLAIN = ("ls -la\n\techo 'grüße 系统'", "line\r\nline\r\n", "naïve café 👍", "")


@pytest.mark.spec("R-233")
@pytest.mark.parametrize("text", HIDDEN_IN_APPROVALS, ids=ascii)
def test_hidden_characters_are_written_out(text: str) -> None:
    shown = reveal_hidden(text)
    assert shown.isprintable()
    assert "\\" in shown
    assert all(char in shown for char in text if char.isascii() and char.isprintable())


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert reveal_hidden(text) == text
    assert reveal_blocks([ShellBlock(language="bash", command=text)]) == (ShellBlock(language="bash", command=text),)


@given(st.text())
def test_no_hidden_character_is_left(text: str) -> None:
    left = {char for char in reveal_hidden(text) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left <= {"\n", "\t", "\r"}
    assert reveal_hidden(text).count("\r") == text.count("\r\n")
    assert len(reveal_hidden_line(text).splitlines() or [""]) == 1


@pytest.mark.spec("R-233")
def test_blocks_of_an_approval_say_what_was_made_visible() -> None:
    blocks = reveal_blocks(
        [
            DiffBlock(path="a\n\u202eb", old_text="x\r\ny", new_text="x\u200by"),
            ShellBlock(language="bash", command="echo \x1b]0;t\x07"),
            BriefBlock("\u2066x"),
            TodoBlock((TodoItem("a"),)),
        ]
    )
    assert blocks == (
        DiffBlock(path="a\\n\\u202eb", old_text="x\r\ny", new_text="x\\u200by"),
        ShellBlock(language="bash", command="echo \\x1b]0;t\\x07"),
        BriefBlock("\\u2066x"),
        TodoBlock((TodoItem("a"),)),
        BriefBlock(HIDDEN_NOTE),
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Reject", " reJECT!"),
        ("Reject", "R\u200beject"),
        ("Reject", "\uff32eject"),
        ("Other", "\u039fther"),
        ("a b", "A-B"),
    ],
)
def test_labels_that_look_alike_are_equal(one: str, other: str) -> None:
    assert fold_label(one) == fold_label(other)
