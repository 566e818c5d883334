"""What a person sees again of a stored session."""

import pytest

from kimi.application.codec.envelope import encode_event
from kimi.application.ports import SessionFiles
from kimi.application.sessions.last_turns import MAX_BYTES, load_last_turns
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import Event, ToolResult, TurnBegin, TurnEnd
from kimi.domain.history.session import ContextRecord, SystemPromptRecord
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def session(*events: Event) -> SessionFiles:
    """An open session with this log."""
    files = await MemoryStore(".").create("s")
    for event in events:
        files.append_event(encode_event(event), 0.0)
    return files


def turn(text: str, answer: str) -> list[Event]:
    """A turn as it is recorded."""
    return [TurnBegin(text), TextPart(answer), TurnEnd()]


def said(events: list[Event]) -> list[str]:
    """What the person said, and what was answered."""
    found = [event.user_input if isinstance(event, TurnBegin) else event for event in events]
    return [one.text if isinstance(one, TextPart) else one for one in found if isinstance(one, TextPart | str)]


CONTEXT: list[ContextRecord] = [
    SystemPromptRecord("prompt"),
    user_message("<system>CHECKPOINT 0</system>"),
    user_message("old question"),
    Message("assistant", (TextPart("looking"),), (ToolCall("c", Function("Shell", "{}")),)),
    Message("tool", (TextPart("output"),), tool_call_id="c"),
    user_message("<system-reminder>\nPlan mode is on.</system-reminder>"),
    user_message('<notification id="n">\nx\n</notification>'),
    Message("assistant", (TextPart("an answer"),)),
]


async def test_last_turns_are_read_from_the_log() -> None:
    files = await session(*[event for n in range(8) for event in turn(f"q{n}", f"a{n}")])
    events = load_last_turns(files, [user_message("q7")])
    assert said(events) == [text for n in range(3, 8) for text in (f"q{n}", f"a{n}")]


async def test_cleared_turns_are_not_returned() -> None:
    files = await session(*turn("q0", "a0"), *turn("/clear", "cleared"), *turn("q1", "a1"))
    assert said(load_last_turns(files, [user_message("q1")])) == ["/clear", "cleared", "q1", "a1"]


async def test_unrelated_log_falls_back_to_the_context() -> None:
    files = await session(*turn("another conversation", "x"))
    assert load_last_turns(files, CONTEXT) == [
        TurnBegin((TextPart("old question"),)),
        TextPart("looking"),
        ToolCall("c", Function("Shell", "{}")),
        ToolResult("c", ToolReturnValue(False, "output", "")),
        TextPart("an answer"),
        TurnEnd(),
    ]


async def test_a_log_that_is_too_long_is_not_read() -> None:
    piece = "x" * (MAX_BYTES // 4)
    files = await session(*turn("old question", piece), *turn("q1", piece), *turn("q2", piece), *turn("q3", piece))
    assert said(load_last_turns(files, CONTEXT))[0] == "looking"


async def test_no_log_and_no_context_returns_no_turns() -> None:
    assert load_last_turns(await session(), []) == []
