"""Use-case run-turn over fakes: whole event lists, and what the history holds afterwards."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import anyio
import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import EventChannel
from kimi.application.ports import ResponseEnd, SessionFiles, ToolCallContext
from kimi.domain.content.message import Function, JsonObject, Message, ToolCall, ToolCallPart, message_text
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    CapabilityMissing,
    ModelNotSet,
    StateError,
    StoreFailed,
)
from kimi.domain.events.event import (
    Event,
    StatusUpdate,
    StepBegin,
    StepInterrupted,
    StepRetry,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SessionState, SystemPromptRecord, UsageRecord
from kimi.domain.tools.tool import CANCELLED, ToolReturnValue, tool_ok
from kimi.domain.turn import TokenUsage, TurnLimits, TurnStatus
from tests.support.conversations import conversation_with, memory_files, run
from tests.support.fakes import FakeModel, FakeTool, Script, forever

pytestmark = pytest.mark.anyio


def call(call_id: str, name: str, arguments: str | None = "{}") -> ToolCall:
    """A tool call as the model gives it."""
    return ToolCall(call_id, Function(name, arguments))


async def test_plain_answer_emits_five_kinds_of_events_and_stores_five_records() -> None:
    usage = TokenUsage(input_other=10, output=5, input_cache_read=2)
    model = FakeModel([[TextPart("Hel"), TextPart("lo"), ResponseEnd("m1", usage, "end")]])
    conversation = await conversation_with(model)

    outcome = await run(conversation, "hi")

    assert outcome.events == [
        TurnBegin("hi"),
        StepBegin(1),
        TextPart("Hel"),
        TextPart("lo"),
        StatusUpdate(12 / 100_000, 12, 100_000, usage, "m1", plan_mode=False, usage=conversation.models.usage.figures),
        TurnEnd(),
    ]
    assert outcome.status == TurnStatus("finished", stop_reason="end")
    assert conversation.files.load_context() == [
        SystemPromptRecord("You are a test."),
        CheckpointRecord(0),
        Message("user", (TextPart("hi"),)),
        CheckpointRecord(1),
        UsageRecord(12),
        Message("assistant", (TextPart("Hello"),)),
        UsageRecord(17),
    ]


async def test_a_tool_turn_shows_the_model_its_call_and_the_result() -> None:
    model = FakeModel(
        [
            [TextPart("Let me see."), call("c1", "Look", '{"at"'), ToolCallPart(': "x"}')],
            [TextPart("Seen.")],
        ]
    )
    tool = FakeTool("Look")
    conversation = await conversation_with(model, [tool])

    outcome = await run(conversation, "look")

    assert tool.ran == [{"at": "x"}]
    assert outcome.names == [
        "TurnBegin", "StepBegin", "TextPart", "ToolCall", "ToolCallPart", "StatusUpdate", "ToolResult",
        "StepBegin", "TextPart", "StatusUpdate", "TurnEnd",
    ]  # fmt: skip
    assert model.asked[1].history == (
        Message("user", (TextPart("look"),)),
        Message("assistant", (TextPart("Let me see."),), (call("c1", "Look", '{"at": "x"}'),)),
        Message("tool", (TextPart("done"),), tool_call_id="c1"),
    )


@pytest.mark.spec("R-94", "W-68")
async def test_the_step_limit_ends_the_turn_after_the_last_step_is_complete() -> None:
    model = FakeModel([[call(f"c{n}", "Look")] for n in range(3)])
    conversation = await conversation_with(model, [FakeTool("Look")], limits=TurnLimits(max_steps=3))

    outcome = await run(conversation, "look for ever")

    assert outcome.status == TurnStatus("max_steps_reached", steps=3)
    step = ["StepBegin", "ToolCall", "StatusUpdate", "ToolResult"]
    assert outcome.names == ["TurnBegin", *step, *step, *step, "TurnEnd"]


@pytest.mark.spec("T-22", "R-95")
async def test_parallel_results_are_sent_as_they_finish_and_stored_in_call_order() -> None:
    finished: list[str] = []
    gates = {name: anyio.Event() for name in ("a", "b", "c")}
    running = 0

    async def body(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        nonlocal running
        running += 1
        if running == 3:  # only when all three run at once does anything go on
            gates["c"].set()
        name = str(arguments["n"])
        await gates[name].wait()
        finished.append(name)
        for following in {"c": "b", "b": "a"}.get(name, ""):
            gates[following].set()
        return tool_ok(name)

    calls = [call(f"id-{name}", "Wait", f'{{"n": "{name}"}}') for name in "abc"]
    conversation = await conversation_with(FakeModel([calls, [TextPart("ok")]]), [FakeTool("Wait", body)])

    outcome = await run(conversation, "go")

    results = [event.tool_call_id for event in outcome.events if isinstance(event, ToolResult)]
    assert results == ["id-c", "id-b", "id-a"]
    stored = [record.tool_call_id for record in conversation.files.load_context() if isinstance(record, Message)]
    assert [call_id for call_id in stored if call_id] == ["id-a", "id-b", "id-c"]


@pytest.mark.spec("T-23", "R-63")
async def test_read_only_tools_start_during_streaming_and_others_after_storing() -> None:
    started: dict[str, bool] = {}
    looked = anyio.Event()

    async def body(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        stored = any(isinstance(record, Message) and record.tool_calls for record in conversation.history.records)
        started[context.call_name] = stored
        if context.call_name == "Look":
            looked.set()
        return tool_ok("ok")

    script: Script = [call("c1", "Change"), call("c2", "Look"), call("c3", "Change"), looked.wait]
    tools = [FakeTool("Look", body, read_only=True), FakeTool("Change", body)]
    conversation = await conversation_with(FakeModel([script, [TextPart("ok")]]), tools)

    outcome = await run(conversation, "go")

    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert started == {"Look": False, "Change": True}


@pytest.mark.spec("T-24", "R-84")
async def test_failing_stream_cancels_running_calls_and_stores_nothing() -> None:
    started, cancelled = anyio.Event(), anyio.Event()

    async def body(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return tool_ok("never")

    first: Script = [
        TextPart("half "),
        call("c1", "Look"),
        call("c2", "Look"),
        started.wait,
        APIConnectionError("The connection to the provider broke."),
    ]
    conversation = await conversation_with(
        FakeModel([first, [TextPart("whole")]]), [FakeTool("Look", body, read_only=True)]
    )

    outcome = await run(conversation, "go")

    assert cancelled.is_set()
    assert not any(isinstance(event, ToolResult) for event in outcome.events)
    assert StepRetry(1, 2, 3, 0.3, "APIConnectionError", None) in outcome.events
    messages = [record for record in conversation.files.load_context() if isinstance(record, Message)]
    assert messages == [Message("user", (TextPart("go"),)), Message("assistant", (TextPart("whole"),))]


async def test_attempts_are_limited_and_the_last_error_ends_the_turn() -> None:
    error = APIStatusError(503, "try later")
    conversation = await conversation_with(FakeModel([[error], [error]]), limits=TurnLimits(max_attempts=2))

    outcome = await run(conversation, "go")

    assert outcome.error is error
    assert outcome.events == [
        TurnBegin("go"),
        StepBegin(1),
        StepRetry(1, 2, 2, 0.3, "APIStatusError", 503),
        StepInterrupted(),
        TurnEnd(),
    ]


async def test_a_final_error_is_not_tried_again() -> None:
    error = APIStatusError(400, "no such model")
    conversation = await conversation_with(FakeModel([[TextPart("par"), error]]))

    outcome = await run(conversation, "go")

    assert outcome.error is error
    assert outcome.names == ["TurnBegin", "StepBegin", "TextPart", "StepInterrupted", "TurnEnd"]


@pytest.mark.spec("R-85")
@pytest.mark.parametrize("script", [[], [TextPart("")], [ThinkPart("hm")]], ids=["empty", "blank", "think only"])
async def test_an_answer_without_anything_visible_is_an_error(script: Script) -> None:
    conversation = await conversation_with(FakeModel([script]), limits=TurnLimits(max_attempts=1))

    outcome = await run(conversation, "go")

    assert isinstance(outcome.error, APIEmptyResponseError)
    assert outcome.names[-2:] == ["StepInterrupted", "TurnEnd"]


async def test_without_a_model_the_turn_begins_and_ends_and_nothing_is_stored() -> None:
    conversation = await conversation_with(None)

    outcome = await run(conversation, "hi")

    assert isinstance(outcome.error, ModelNotSet)
    assert outcome.names == ["TurnBegin", "TurnEnd"]
    assert conversation.files.load_context() == []


@pytest.mark.spec("R-86")
async def test_unsupported_input_is_refused_naming_all_missing_capabilities() -> None:
    conversation = await conversation_with(FakeModel([]))

    outcome = await run(conversation, (ThinkPart("hm"), ImagePart(MediaUrl("https://example.test/a.png"))))

    assert isinstance(outcome.error, CapabilityMissing)
    assert str(outcome.error) == "LLM model 'fake' does not support required capabilities: image_in, thinking."
    assert outcome.names == ["TurnBegin", "TurnEnd"]
    assert conversation.files.load_context() == []


@pytest.mark.spec("R-98")
async def test_cancel_during_streaming_ends_step_and_resolves_announced_calls() -> None:
    script: Script = [TextPart("thin"), call("c1", "Look"), forever]

    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ToolCall) and conversation.turn:
            conversation.turn.scope.cancel()

    conversation = await conversation_with(FakeModel([script, [TextPart("again")]]), [FakeTool("Look")])
    outcome = await run(conversation, "go", react=cancel)

    assert outcome.status == TurnStatus("cancelled")
    assert outcome.events[-3:] == [ToolResult("c1", CANCELLED), StepInterrupted(), TurnEnd()]
    assert (await run(conversation, "again")).status == TurnStatus("finished", stop_reason="unknown")


@pytest.mark.spec("R-63")
async def test_cancel_during_calls_keeps_known_results_and_cancels_the_others() -> None:
    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ToolResult) and conversation.turn:
            conversation.turn.scope.cancel()

    async def body(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        if context.call_id == "slow":
            await anyio.sleep_forever()
        return tool_ok("known")

    calls = [call("slow", "Work"), call("quick", "Work")]
    conversation = await conversation_with(FakeModel([calls]), [FakeTool("Work", body)])
    outcome = await run(conversation, "go", react=cancel)

    results = {event.tool_call_id: event.return_value for event in outcome.events if isinstance(event, ToolResult)}
    assert results == {"quick": tool_ok("known"), "slow": CANCELLED}
    answers = [record for record in conversation.files.load_context() if isinstance(record, Message)][-2:]
    assert answers == [
        Message("tool", (TextPart("<system>ERROR: Tool call cancelled.</system>"),), tool_call_id="slow"),
        Message("tool", (TextPart("known"),), tool_call_id="quick"),
    ]


async def test_cancel_before_first_step_emits_two_events() -> None:
    conversation = await conversation_with(FakeModel([]))

    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, TurnBegin) and conversation.turn:
            conversation.turn.scope.cancel()

    turn_scope_cancelled_early = await run(conversation, "go", react=cancel)
    assert turn_scope_cancelled_early.status == TurnStatus("cancelled")
    assert turn_scope_cancelled_early.names[-1] == "TurnEnd"


@pytest.mark.spec("T-26", "W-99", "T-27")
async def test_duplicate_or_missing_call_ids_are_replaced() -> None:
    calls = [call("c1", "Look"), call("c1", "Look"), call("", "Look")]
    tool = FakeTool("Look")
    conversation = await conversation_with(FakeModel([calls, [TextPart("ok")]]), [tool])

    outcome = await run(conversation, "go")

    announced = [event.id for event in outcome.events if isinstance(event, ToolCall)]
    answered = [event.tool_call_id for event in outcome.events if isinstance(event, ToolResult)]
    assert len(set(announced)) == 3
    assert "" not in announced
    assert sorted(answered) == sorted(announced)
    assert len(tool.ran) == 3


@pytest.mark.spec("T-28", "R-111")
async def test_the_same_call_step_after_step_is_reminded_and_then_stopped() -> None:
    same = [[call(f"c{n}", "Look", '{"b": 1, "a": 2}' if n % 2 else '{"a": 2, "b": 1}')] for n in range(20)]
    model = FakeModel(list(same))
    conversation = await conversation_with(model, [FakeTool("Look")])

    outcome = await run(conversation, "go")

    outputs = [str(event.return_value.output) for event in outcome.events if isinstance(event, ToolResult)]
    reminders = ("the same call as in the steps before", "with the arguments", "Call no more tools")
    shown = [[number for number, text in enumerate(reminders) if text in output] for output in outputs]
    assert shown == [[]] * 2 + [[0]] * 2 + [[1]] * 3 + [[2]] * 5  # from the third, fifth and eighth on
    assert outputs[:2] == ["done", "done"]
    assert all(output.startswith("done\n\n<system-reminder>") for output in outputs[2:])
    assert outcome.status == TurnStatus("finished", stop_reason="unknown")


async def test_only_one_turn_runs_at_a_time() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("ok")]]))
    conversation.turns.begin()
    with pytest.raises(StateError, match="already in progress"):
        conversation.turns.begin()


async def test_an_orphan_argument_piece_is_dropped() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("a"), ToolCallPart("{}"), TextPart("b")]]))
    outcome = await run(conversation, "go")
    assert ToolCallPart("{}") not in outcome.events


async def test_the_first_prompt_names_the_session_and_commands_do_not() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("ok")], [TextPart("ok")]]))
    await run(conversation, "/nope")
    assert conversation.files.state.custom_title is None
    await run(conversation, "Write   a poem\nabout rain")
    assert conversation.files.state.custom_title == "Write a poem about rain"
    await run(conversation, "Another one")
    assert conversation.files.state.custom_title == "Write a poem about rain"


class FullDisk:
    """The files of a session on a disk that takes no more of the context while it is `full`."""

    def __init__(self, files: SessionFiles) -> None:
        self.full = False
        self._files = files

    def append_context(self, records: Sequence[ContextRecord]) -> None:
        """Fails while the disk is full."""
        if self.full:
            raise StoreFailed("The disk is full.")
        self._files.append_context(records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


async def test_two_turns_that_fail_on_a_full_disk_answer_a_call_once() -> None:
    disk = FullDisk(await memory_files())

    async def body(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        disk.full = True
        return tool_ok("known")

    model = FakeModel([[call("c1", "Look")], [TextPart("ok")]])
    conversation = await conversation_with(model, [FakeTool("Look", body)], files=cast("SessionFiles", disk))
    for text in ("look", "again"):
        assert isinstance((await run(conversation, text)).error, StoreFailed)
    disk.full = False
    assert (await run(conversation, "and now?")).error is None

    roles = [message.role for message in model.asked[1].history]
    assert roles == ["user", "assistant", "tool", "user"]
    assert message_text(model.asked[1].history[2]) == "known"


async def test_step_blocked_by_slow_client_is_closed_on_cancel() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("never said")]]))
    conversation.events.channel = EventChannel(limit=0)

    def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, StepBegin) and conversation.turn is not None:
            conversation.turn.scope.cancel()

    outcome = await run(conversation, "hi", react=cancel)

    assert outcome.events == [TurnBegin("hi"), StepBegin(1), StepInterrupted(), TurnEnd()]
    assert outcome.status == TurnStatus("cancelled")


class SlowFiles:
    """The files of a session whose state takes as long to store as `may_store` is not set."""

    def __init__(self, files: SessionFiles) -> None:
        self._files = files
        self.may_store = threading.Event()
        self.stored: list[int] = []
        """The totals of tokens that were stored."""

    def save_state(self, state: SessionState) -> None:
        if state.usage is not None:
            assert self.may_store.wait(10)
            self.stored.append(state.usage.tokens.total)
        self._files.save_state(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


async def test_turns_that_end_while_usage_is_stored_share_the_next_write() -> None:
    answer: Script = [TextPart("ok"), ResponseEnd("m", TokenUsage(input_other=10), "end")]
    files = SlowFiles(await memory_files())
    conversation = await conversation_with(FakeModel([answer] * 4), files=cast("SessionFiles", files))
    async with anyio.create_task_group() as tasks:
        conversation.resources.hooks.set_task_group(tasks)
        for _ in range(4):
            await run(conversation, "hi")
        files.may_store.set()
    assert len(files.stored) == 2
    assert files.stored[-1] == 40
