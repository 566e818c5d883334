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
    Block,
    Called,
    CodeSaid,
    Note,
    PlanShown,
    Preview,
    Said,
    Thinking,
    Thought,
    UserSaid,
    Welcome,
)
from kimi.interfaces.shell.render.paint import Painter, duration
from kimi.interfaces.shell.render.plain import plain_text
from kimi.interfaces.shell.render.transcript import Transcript, call_title

DIFF = DiffBlock("src/app.py", "def f():\n    return 1\n\n", "def f() -> int:\n    return 1\n\n", 10, 10)

ENTRIES = TodoBlock((TodoItem("a", "done"), TodoItem("b", "in_progress"), TodoItem("c")))


def picture(*blocks: Block, width: int = 40) -> str:
    """The blocks as they stand on a terminal, without colours."""
    painted = Painter(width).paint(*blocks)
    return "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", painted).split("\n")).rstrip("\n")


SCREENS: dict[str, Block] = {
    "welcome": Welcome("2.0", "~/work", "abc", "m", (Note("No key.", "warning"),)),
    "user": UserSaid("fix it\nplease", 1),
    "much of a user": UserSaid("\n".join(f"line {number}" for number in range(40))),
    "steer": UserSaid("use tabs", steer=True),
    "markdown": Said("Some *words* and `code`:\n\n1. one\n2. two\n   - inner\n\n> quoted\n\n[link](http://x.y)"),
    "heading": Said("## Title"),
    "html": Said("a <system>b</system> & <b>c</b>"),
    "table": Said("| a | b |\n|---|---|\n| 1 | 你好 |"),
    "code": CodeSaid("python", "def f():\n    return 1"),
    "code, next lines": CodeSaid("python", "f()", goes_on=True),
    "thought": Thought(65, "First this, then that, and much more"),
    "thinking": Thinking("so it goes"),
    "running call": Called("Shell", "make test", seconds=3),
    "subagent": Called("Agent", "look around", seconds=5, nested=("Read a.py", "Grep x"), nested_total=7),
    "output": Called("Shell", "ls", "ok", output="\n".join(f"file{number}" for number in range(9))),
    "failed call": Called("Shell", "false", "error", 2, "Failed"),
    "diff": Called("StrReplaceFile", "src/app.py", "ok", display=(DIFF,)),
    "todo": Called("SetTodoList", "", "ok", display=(ENTRIES,)),
    "command to approve": Preview((ShellBlock(language="bash", command="a &&\nb"),)),
    "plan": PlanShown("# Do it\n\n1. now", "p.md"),
    "error": Note("It is so, and so it goes on for a while.", "error"),
    "info": Note("So it is."),
}
GOLDEN = Path(__file__).with_name("screens.txt")


def screens() -> str:
    """All pictures, each under its name; `GOLDEN` holds what this must give."""
    return "".join(f"=== {name}\n{picture(block)}\n" for name, block in SCREENS.items())


def test_blocks_on_forty_columns() -> None:
    assert screens() == GOLDEN.read_text(encoding="utf-8")


def test_colours_mean_something_and_can_be_left_out() -> None:
    block = Called("StrReplaceFile", "a", "ok", display=(DIFF,))
    coloured = Painter(60, "256").paint(block)
    assert "\x1b[32m10 +" in coloured
    assert "\x1b[31m10 -" in coloured
    assert not re.search(r"\x1b\[[0-9;]*[34]\dm", Painter(60, None).paint(block))


def test_plain_lines_say_all_of_it() -> None:
    text = "".join(map(plain_text, SCREENS.values()))
    for expected in ("You: fix it", "Thought for 65 s.", "Tool Shell false: failed - Failed", "10 + def f", "[>] b"):
        assert expected in text


# --- events to blocks -------------------------------------------------------------------------------------------


def shown(*events: Event) -> list[Block]:
    """All final blocks of these events, with a clock that goes one second at each look."""
    seconds = iter(range(1000))
    transcript = Transcript(lambda name: "path" if name == "ReadFile" else None, lambda: next(seconds), "/work")
    return [block for event in events for block in transcript.take(event)]


def test_a_turn_as_blocks() -> None:
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
        UserSaid("go"),
        Thought(1, "let me see"),
        Said("I will look."),
        Said("Now"),
        Called("Shell", "ls", "error", 2, "Failed"),
        Called("ReadFile", "a.py", "ok", 5, output="text"),
        Said("Done."),
    ]


def test_what_is_open_is_seen_as_it_grows() -> None:
    transcript = Transcript(lambda _: None, lambda: 0.0)
    transcript.take(ThinkPart("hm"))
    assert transcript.open_blocks() == [Thinking("hm")]
    transcript.take(TextPart("half a sen"))
    assert transcript.open_blocks() == [Said("half a sen")]
    transcript.take(ToolCall("c", Function("Agent", '{"description": "look')))
    assert transcript.open_blocks() == [Called("Agent", "look")]
    transcript.take(SubagentEvent("c", "a", "coder", ToolCall("i", Function("Shell", '{"command": "ls"}'))))
    assert transcript.open_blocks() == [Called("Agent", "look", nested=("Shell ls",), nested_total=1)]
    transcript.take(CompactionBegin())
    assert transcript.activity == "Compacting the context"
    transcript.take(CompactionEnd())
    assert transcript.activity == ""


def test_a_retry_says_that_what_was_said_is_void() -> None:
    (said, note) = shown(TextPart("half"), StepRetry(1, 2, 3, 4.2, "APIStatusError", 503))
    assert said == Said("half")
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
    assert call_title(arguments, key) == title


def test_times_for_a_reader() -> None:
    assert [duration(one) for one in (0.4, 59, 61, 3700)] == ["0s", "59s", "1m 01s", "1h 01m"]


def test_a_call_takes_a_bounded_part_of_the_scrollback_however_long_its_lines_are() -> None:
    long = "word " * 60_000
    change = DiffBlock(path="min.js", old_text=long, new_text=long + "!")
    calls = Called("WriteFile", "min.js", "ok", 0, "", "", (change,)), Called("Shell", "x", "error", 0, long)
    for one in calls:
        assert picture(one, width=80).count("\n") < 40
    assert picture(Preview((change,)), width=80).count("word") == 120_000  # what is approved can be read whole


if __name__ == "__main__":
    GOLDEN.write_text(screens(), encoding="utf-8")
