"""Nothing that models, tools or files say can drive the terminal."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.events.event import Event, Notification, PlanDisplay, SteerInput, ToolResult, TurnBegin, TurnEnd
from kimi.domain.events.request import ApprovalRequest
from kimi.domain.tools.tool import (
    BackgroundTaskBlock,
    BriefBlock,
    DiffBlock,
    ShellBlock,
    TodoBlock,
    TodoItem,
    ToolReturnValue,
)
from kimi.interfaces.shell.panels import build_approval_menu
from kimi.interfaces.shell.render.blocks import ApprovalPreview, Note, OutputBlock, Welcome
from kimi.interfaces.shell.render.painter import Painter
from kimi.interfaces.shell.render.plain_blocks import format_block
from kimi.interfaces.shell.render.sanitize import (
    clean_tool_output,
    count_cells,
    fit_one_line,
    neutralize,
    truncate_to_width,
)
from kimi.interfaces.shell.render.transcript import Transcript

SEQUENCES = (
    "\x1b[2J", "\x1b[H", "\x1b]0;title\x07", "\x1b]52;c;c2VjcmV0\x07", "\x1b[6n", "\x1bc", "\x9b2J", "\x90q\x9c",
    "\x1b_Ga=T\x1b\\", "\r", "\b\b\b", "\x07", "\x0e", "\x7f", "\u202e", "\u2066", "\u200b", "\x00", "\ud800",
    "\x1b[31m", "\x1b]8;;http://example.com\x1b\\", "\U000e0041", "\x85", "\u2028", "**", "`", "|", "\n", "\n\n", "# ",
)  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(SEQUENCES), st.text(max_size=8)), max_size=12).map("".join)

_OURS = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\u2028\u2029]")


def controls(painted: str) -> list[str]:
    """Control characters of a painted text other than our own colours."""
    return _CONTROL.findall(_OURS.sub("", painted))


@given(hostile)
def test_neutral_text_has_no_control_characters_and_keeps_visible_ones(text: str) -> None:
    clean = neutralize(text)
    assert not _CONTROL.search(clean)
    assert neutralize(clean) == clean
    visible = [char for char in text if char.isascii() and char.isprintable()]
    assert [char for char in clean if char.isascii() and char.isprintable()] == visible


@given(hostile)
def test_every_block_is_free_of_control_characters(text: str) -> None:
    painter = Painter(40)
    display = (
        DiffBlock(path=text, old_text=text, new_text=f"{text}x"),
        ShellBlock(language=text, command=text),
        TodoBlock((TodoItem(text, "done"), TodoItem(text))),
        BackgroundTaskBlock(task_id=text, kind=text, status=text, description=text),
        BriefBlock(text),
    )
    events: list[Event] = [
        TurnBegin(text),
        ThinkPart(text),
        TextPart(text),
        TextPart(f"\n\n```{text}\n{text}\n```\n"),
        ToolCall("c", Function(text, f'{{"command": "{text}"}}')),
        ToolResult("c", ToolReturnValue(False, text, text, display)),
        ToolCall("d", Function(text, text)),
        ToolResult("d", ToolReturnValue(True, text, text)),
        PlanDisplay(text, text),
        SteerInput(text),
        Notification("n", "task", "t", "k", "s", text, text, "info", 0.0, {}),
        TextPart(text),
        TurnEnd(),
    ]
    transcript = Transcript(lambda _: "command", lambda: 0.0)
    request = ApprovalRequest("r", "c", text, text, text, display=display)
    menu = build_approval_menu(request)
    assert menu.preview is not None
    blocks = [Note(text), OutputBlock(text), Welcome("1", text, "s", text, (Note(text),)), menu.preview]
    for event in events:
        blocks += [*transcript.handle_event(event), *transcript.list_open_blocks()]
    for block in blocks:
        assert not controls(painter.paint(block)), block
        assert not controls(format_block(block)), block


def test_the_command_that_is_approved_is_shown_whole() -> None:
    command = "echo hi \x1b[8m; rm -rf /\x1b]0;rm\x07 \u202e"
    shown = Painter(100).paint(ApprovalPreview((ShellBlock(language="bash", command=command),)))
    plain = _OURS.sub("", shown)
    assert "rm -rf /" in plain
    assert "␛[8m" in plain
    assert "␛]0;rm␇" in plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[32mgreen\x1b[0m", "green"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("a\r\nb", "a\nb"),
        ("\x1b[2Jx", "␛[2Jx"),
        ("a\tb", "a   b"),
    ],
)
def test_output_of_commands_is_readable(text: str, expected: str) -> None:
    assert clean_tool_output(text) == expected


def test_columns_are_counted_as_terminals_do() -> None:
    assert (count_cells("abc"), count_cells("你好"), count_cells("e\u0301")) == (3, 4, 1)
    assert truncate_to_width("你好世界", 5) == "你好…"
    assert truncate_to_width("abc", 3) == "abc"
    assert fit_one_line("a\n b\tc", 10) == "a b c"
    assert fit_one_line("x" * 50, 10) == "x" * 9 + "…"


def test_long_line_after_a_redrawn_one_is_fast() -> None:
    began = time.process_time()
    assert clean_tool_output("10%\r100%\n" + "x" * 400_000).startswith("100%\nxxx")
    assert time.process_time() - began < 2
