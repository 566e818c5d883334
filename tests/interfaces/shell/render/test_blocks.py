"""How each kind of block looks: rendered screens, to be read in review. Colours are left out of the pictures.

python -m tests.interfaces.shell.render.test_blocks    writes the pictures anew
"""

import re
from pathlib import Path

import pytest

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.events.event import (
    CompactionBegin,
    CompactionEnd,
    Event,
    StepBegin,
    StepRetry,
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.tools.tool import DiffBlock, ShellBlock, TodoBlock, TodoItem, tool_error, tool_ok
from kimi.interfaces.shell.render.blocks import (
    ApprovalPreview,
    Block,
    MarkdownBlock,
    MarkdownCodeBlock,
    Note,
    PlanBlock,
    ThinkingBlock,
    ThinkingSummaryBlock,
    ToolCallBlock,
    UserMessageBlock,
    Welcome,
)
from kimi.interfaces.shell.render.painter import Painter, format_duration
from kimi.interfaces.shell.render.plain_blocks import format_block
from kimi.interfaces.shell.render.transcript import Transcript, extract_call_title

DIFF = DiffBlock("src/app.py", "def f():\n    return 1\n\n", "def f() -> int:\n    return 1\n\n", 10, 10)

ENTRIES = TodoBlock((TodoItem("a", "done"), TodoItem("b", "in_progress"), TodoItem("c")))


def picture(*blocks: Block, width: int = 40) -> str:
    """The blocks as they stand on a terminal, without colours."""
    painted = Painter(width).paint(*blocks)
    return "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", painted).split("\n")).rstrip("\n")


SCREENS: dict[str, Block] = {
    "welcome": Welcome("2.0", "~/work", "abc", "m", (Note("No key.", "warning"),)),
    "user": UserMessageBlock("fix it\nplease", 1),
    "much of a user": UserMessageBlock("\n".join(f"line {number}" for number in range(40))),
    "steer": UserMessageBlock("use tabs", steer=True),
    "markdown": MarkdownBlock(
        "Some *words* and `code`:\n\n1. one\n2. two\n   - inner\n\n> quoted\n\n[link](http://x.y)"
    ),
    "heading": MarkdownBlock("## Title"),
    "html": MarkdownBlock("a <system>b</system> & <b>c</b>"),
    "table": MarkdownBlock("| a | b |\n|---|---|\n| 1 | 你好 |"),
    "code": MarkdownCodeBlock("python", "def f():\n    return 1"),
    "code, next lines": MarkdownCodeBlock("python", "f()", is_continuation=True),
    "thought": ThinkingSummaryBlock(65, "First this, then that, and much more"),
    "thinking": ThinkingBlock("so it goes"),
    "running call": ToolCallBlock("Shell", "make test", seconds=3),
    "subagent": ToolCallBlock("Agent", "look around", seconds=5, nested=("Read a.py", "Grep x"), nested_total=7),
    "output": ToolCallBlock("Shell", "ls", "ok", output="\n".join(f"file{number}" for number in range(9))),
    "failed call": ToolCallBlock("Shell", "false", "error", 2, "Failed"),
    "diff": ToolCallBlock("StrReplaceFile", "src/app.py", "ok", display=(DIFF,)),
    "todo": ToolCallBlock("SetTodoList", "", "ok", display=(ENTRIES,)),
    "command to approve": ApprovalPreview((ShellBlock(language="bash", command="a &&\nb"),)),
    "plan": PlanBlock("# Do it\n\n1. now", "p.md"),
    "error": Note("It is so, and so it goes on for a while.", "error"),
    "info": Note("So it is."),
}
GOLDEN = Path(__file__).with_name("screens.txt")


def screens() -> str:
    """All pictures, each under its name; `GOLDEN` holds what this must give."""
    return "".join(f"=== {name}\n{picture(block)}\n" for name, block in SCREENS.items())


def test_blocks_fit_forty_columns() -> None:
    assert screens() == GOLDEN.read_text(encoding="utf-8")


def test_diff_is_coloured_unless_colours_are_disabled() -> None:
    block = ToolCallBlock("StrReplaceFile", "a", "ok", display=(DIFF,))
    coloured = Painter(60, "256").paint(block)
    assert "\x1b[32m10 +" in coloured
    assert "\x1b[31m10 -" in coloured
    assert not re.search(r"\x1b\[[0-9;]*[34]\dm", Painter(60, None).paint(block))


def test_plain_text_contains_all_block_content() -> None:
    text = "".join(map(format_block, SCREENS.values()))
    for expected in ("You: fix it", "Thought for 65 s.", "Tool Shell false: failed - Failed", "10 + def f", "[>] b"):
        assert expected in text


# --- events to blocks -------------------------------------------------------------------------------------------


def shown(*events: Event) -> list[Block]:
    """All final blocks of these events, with a clock that goes one second at each look."""
    seconds = iter(range(1000))
    transcript = Transcript(lambda name: "path" if name == "ReadFile" else None, lambda: next(seconds), "/work")
    return [block for event in events for block in transcript.handle_event(event)]


def test_turn_events_become_blocks() -> None:
    blocks = shown(
        TurnBegin("go"),
        StepBegin(1),
        ThinkPart("let me "),
        ThinkPart("see"),
        TextPart("I will "),
        TextPart("look.\n\nNow"),
        ToolCall("c1", Function("ReadFile", '{"path": "/wor')),
        ToolCallPart('k/a.py"}'),
        ToolCall("c2", Function("Shell", '{"command": "ls"}')),
        ToolResult("c2", tool_error("Failed with exit code: 1.", "Failed")),
        ToolResult("c1", tool_ok("text", "2 lines read.")),
        TextPart("Done."),
        TurnEnd(),
    )
    assert blocks == [
        UserMessageBlock("go"),
        ThinkingSummaryBlock(1, "let me see"),
        MarkdownBlock("I will look."),
        MarkdownBlock("Now"),
        ToolCallBlock("Shell", "ls", "error", 2, "Failed with exit code: 1."),
        ToolCallBlock("ReadFile", "a.py", "ok", 5, output="text"),
        MarkdownBlock("Done."),
    ]


def test_open_blocks_grow_with_their_events() -> None:
    transcript = Transcript(lambda _: None, lambda: 0.0)
    transcript.handle_event(ThinkPart("hm"))
    assert transcript.list_open_blocks() == [ThinkingBlock("hm")]
    transcript.handle_event(TextPart("half a sen"))
    assert transcript.list_open_blocks() == [MarkdownBlock("half a sen")]
    transcript.handle_event(ToolCall("c", Function("Agent", '{"description": "look')))
    assert transcript.list_open_blocks() == [ToolCallBlock("Agent", "look")]
    transcript.handle_event(SubagentEvent("c", "a", "coder", ToolCall("i", Function("Shell", '{"command": "ls"}'))))
    assert transcript.list_open_blocks() == [ToolCallBlock("Agent", "look", nested=("Shell ls",), nested_total=1)]
    transcript.handle_event(CompactionBegin())
    assert transcript.activity == "Compacting the context"
    transcript.handle_event(CompactionEnd())
    assert transcript.activity == ""


def test_retry_note_follows_the_discarded_text() -> None:
    (said, note) = shown(TextPart("half"), StepRetry(1, 2, 3, 4.2, "APIStatusError", 503))
    assert said == MarkdownBlock("half")
    assert isinstance(note, Note)
    assert note.text.startswith("The model did not answer (APIStatusError 503); attempt 2 of 3 in 4 s.")


@pytest.mark.parametrize(
    ("arguments", "key", "title"),
    [
        ('{"command": "ls -la"}', "command", "ls -la"),
        ('{"command": "echo \\"hi\\" \\u0041\\n', "command", 'echo "hi" A'),
        ('{"path": "\\ud83d\\ude00.txt"}', "path", "😀.txt"),
        ('{"path": "half \\ud83d', "path", "half \N{REPLACEMENT CHARACTER}"),
        ('{"path": "a", "content": "b"}', None, "a"),
        ('{"comm', "command", ""),
        ("not json", None, ""),
    ],
)
def test_titles_come_from_unfinished_arguments(arguments: str, key: str | None, title: str) -> None:
    assert extract_call_title(arguments, key) == title


def test_durations_are_readable() -> None:
    assert [format_duration(one) for one in (0.4, 59, 61, 3700)] == ["0s", "59s", "1m 01s", "1h 01m"]


def test_call_with_long_lines_has_bounded_height() -> None:
    long = "word " * 60_000
    change = DiffBlock(path="min.js", old_text=long, new_text=long + "!")
    calls = (
        ToolCallBlock("WriteFile", "min.js", "ok", 0, "", "", (change,)),
        ToolCallBlock("Shell", "x", "error", 0, long),
    )
    for one in calls:
        assert picture(one, width=80).count("\n") < 40
    assert picture(ApprovalPreview((change,)), width=80).count("word") == 120_000  # what is approved can be read whole


if __name__ == "__main__":
    GOLDEN.write_text(screens(), encoding="utf-8")


@pytest.mark.spec("R-234")
def test_a_preview_shows_a_long_path_to_its_end() -> None:
    path = "/home/" + "d/" * 60 + "end.txt"
    painted = Painter(40, None).paint(ApprovalPreview((DiffBlock(path=path, old_text="", new_text="x"),)))
    assert path in re.sub(r"\x1b\[\d*m|\s", "", painted)
