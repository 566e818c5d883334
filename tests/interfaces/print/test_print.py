"""Print mode's parts: formats of the output, prompts of the input, waiting for tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.conversation.background_tasks import BackgroundTaskRegistry
from kimi.application.ports import BackgroundTasks
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import BackgroundSettings
from kimi.domain.background import BackgroundTaskSpec
from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.errors import ChatProviderError, StoreFailed
from kimi.domain.events.event import (
    Event,
    Notification,
    PlanDisplay,
    StepBegin,
    StepInterrupted,
    StepRetry,
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.tools.tool import tool_error, tool_ok
from kimi.domain.turn import TurnStatus
from kimi.interfaces.print.background_wait import TASK_ENDED_PROMPT, TIMEOUT_PROMPT, TasksTimedOut, wait_for_tasks
from kimi.interfaces.print.failure import RunFailure, classify_error, classify_turn_status
from kimi.interfaces.print.output import FinalMessageOutput, PrintOutput
from kimi.interfaces.print.prompts import parse_prompt_line, read_prompts
from kimi.interfaces.print.stream_json_output import StreamJsonOutput
from kimi.interfaces.print.text_output import TextOutput
from tests.support.background_tasks import FakeTasks
from tests.support.conversations import conversation_with, with_resources
from tests.support.fakes import FakeModel
from tests.support.shown.attacks import TERMINAL_CONTROL, TERMINAL_SEQUENCES

pytestmark = pytest.mark.anyio

CALL = ToolCall("c1", Function("Shell", '{"comm'))
REST = ToolCallPart('and": "ls\\n-l"}')
DONE = ToolResult("c1", tool_ok("out"))
FAILED = ToolResult("c1", tool_error("It broke.", "Broken\x1b"))
RETRY = StepRetry(1, 2, 3, 0.3, "APIStatusError", 503)
NOTE = Notification("n", "task", "task.completed", "background_task", "t", "It is\ndone", "", "success", 1.0, {})


def key_argument(name: str) -> str | None:
    return {"Shell": "command"}.get(name)


def text(*events: Event, terminal: bool = False) -> str:
    return shown(TextOutput(key_argument, stdout_is_terminal=terminal), *events)


def shown(output: PrintOutput, *events: Event) -> str:
    return b"".join([*map(output.render_event, events), output.render_end()]).decode()


# --- text -------------------------------------------------------------------------------------------------------


def test_text_streams_and_calls_have_their_own_lines() -> None:
    assert text(TextPart("a "), TextPart("b"), CALL, REST, DONE, TextPart("c\n")) == "a b\n* Shell: ls -l\nc\n"
    assert text(CALL, REST, FAILED) == "* Shell: ls -l (Broken\\x1b)\n"
    assert text(CALL, DONE) == "* Shell\n"
    assert text(ToolCall("c1", Function("Other", "[1]")), DONE) == "* Other\n"
    assert text(ToolCall("c1", Function("Shell", '["command"]')), DONE) == "* Shell\n"


def test_text_output_shows_retries_notifications_and_plans() -> None:
    assert text(TextPart("half"), RETRY, TextPart("whole")) == "half\n(the answer broke off; asking again)\nwhole\n"
    assert text(RETRY, ThinkPart("hm"), NOTE) == "* It is done\n"
    assert text(TextPart("one"), StepBegin(2), PlanDisplay("the plan", "/p")) == "one\nthe plan\n"


def test_calls_of_subagents_are_indented() -> None:
    def inner(event: Event) -> Event:
        return SubagentEvent("c0", "a1", "coder", event)

    outer = ToolCall("c1", Function("Agent", "{}"))
    told = text(outer, inner(TextPart("hi")), inner(CALL), inner(REST), inner(DONE), DONE)
    assert told == "  * Shell: ls -l\n* Agent\n"


def test_failure_has_its_own_line() -> None:
    output = TextOutput(key_argument, stdout_is_terminal=False)
    told = output.render_event(TextPart("half")) + output.render_failure(RunFailure("no\nway"))
    assert told == b"half\nno way\n"


@given(st.lists(st.text()))
def test_text_output_passes_any_text_through(pieces: list[str]) -> None:
    said = "".join(pieces)
    told = b"".join(map(TextOutput(key_argument, stdout_is_terminal=False).render_event, map(TextPart, pieces)))
    assert told == said.encode("utf-8", "backslashreplace")


# --- stream-json ------------------------------------------------------------------------------------------------


def messages(*events: Event) -> Sequence[Any]:
    return [json.loads(line) for line in shown(StreamJsonOutput(stdout_is_terminal=False), *events).splitlines()]


def test_output_of_a_failed_attempt_is_dropped() -> None:
    half = (TextPart("half"), CALL)
    assert messages(*half, RETRY, TextPart("whole")) == [{"role": "assistant", "content": "whole"}]
    assert messages(*half, StepInterrupted()) == []


def test_notifications_have_their_own_lines() -> None:
    note, plan, answer = messages(TextPart("a"), NOTE, TextPart("b"), PlanDisplay("the plan", "/p"), TextPart("c"))
    assert answer == {"role": "assistant", "content": "abc"}
    assert note == {"role": "meta", "type": "Notification", "payload": vars_of(NOTE)}
    assert plan == {"role": "meta", "type": "PlanDisplay", "payload": {"content": "the plan", "file_path": "/p"}}


def vars_of(note: Notification) -> dict[str, object]:
    return {name: getattr(note, name) for name in Notification.__dataclass_fields__}


@pytest.mark.spec("R-289")
def test_messages_of_subagents_are_records_beside_the_conversation() -> None:
    def inner(event: Event, agent: str = "a1") -> Event:
        return SubagentEvent("c0", agent, "coder", event)

    outer = ToolCall("c0", Function("Agent", "{}"))
    steps = (TextPart("look"), RETRY, TextPart("I look"), CALL, REST, DONE, StepBegin(2), TextPart("fine"), TurnEnd())
    other = inner(SubagentEvent("c7", "a2", "explore", TextPart("other")))
    told = messages(outer, inner(StepBegin(1)), other, *map(inner, steps), inner(TextPart("cut")), DONE)
    about = {"role": "meta", "type": "subagent", "agent_id": "a1", "subagent_type": "coder", "tool_call_id": "c0"}
    records: list[Any] = [one for one in told if one["role"] == "meta"]
    assert [{**one, "message": None} for one in records] == [{**about, "message": None}] * 3
    first, result, last = (one["message"] for one in records)
    assert (first["content"], first["tool_calls"][0]["id"]) == ("I look", "c1")
    assert (result["role"], result["tool_call_id"]) == ("tool", "c1")
    assert last == {"role": "assistant", "content": "fine"}
    assert [one["role"] for one in told if one["role"] != "meta"] == ["assistant", "tool"]


@given(st.text(), st.text())
def test_every_line_is_valid_json_for_any_text(said: str, failure: str) -> None:
    output = StreamJsonOutput(stdout_is_terminal=False)
    lines = (output.render_event(TextPart(said)) + output.render_failure(RunFailure(failure, True))).split(b"\n")
    assert lines.pop() == b""
    parsed = [json.loads(line) for line in lines]
    assert parsed[-1] == {"role": "meta", "type": "error", "message": failure, "retryable": True}
    assert all(len(line.decode().splitlines()) == 1 for line in lines)


# --- the final message ------------------------------------------------------------------------------------------


def test_the_final_message_is_that_of_the_last_step() -> None:
    turn = (TurnBegin("go"), StepBegin(1), TextPart("first"), CALL, DONE, StepBegin(2), ThinkPart("so"))
    assert (
        shown(FinalMessageOutput(as_json=False, stdout_is_terminal=False), *turn, TextPart("la"), TextPart("st\n"))
        == "last\n"
    )
    assert (
        shown(
            FinalMessageOutput(as_json=False, stdout_is_terminal=False), *turn, TextPart("x"), RETRY, TextPart("last")
        )
        == "last\n"
    )
    assert shown(FinalMessageOutput(as_json=False, stdout_is_terminal=False), *turn) == ""
    assert shown(FinalMessageOutput(as_json=True, stdout_is_terminal=False), *turn) == ""


# --- failures ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-80")
def test_failures_have_a_message_and_an_exit_status() -> None:
    assert classify_error(ChatProviderError("bad data")) == RunFailure("bad data")
    assert classify_error(StoreFailed("The disk is full.")) == RunFailure("The disk is full.")
    assert classify_error(RuntimeError("oh")) == RunFailure("Unknown error: oh")
    assert classify_turn_status(TurnStatus("finished")) is None
    assert classify_turn_status(TurnStatus("cancelled")) == RunFailure("Interrupted by user")
    assert (RunFailure("x").exit_status, RunFailure("x", True).exit_status) == (1, 75)


# --- the input --------------------------------------------------------------------------------------------------


async def asked(stdin: bytes, **flags: object) -> list[object]:
    blocks = [stdin[start : start + 5] for start in range(0, len(stdin), 5)]

    async def read() -> bytes:
        return blocks.pop(0) if blocks else b""

    made = Flags("/w", ui="print", **flags)  # pyright: ignore[reportArgumentType]
    return [prompt async for prompt in read_prompts(made, read, stdin_is_terminal=False, max_line_bytes=60)]


async def test_lines_may_come_in_any_pieces() -> None:
    long = json.dumps({"role": "user", "content": "x" * 60})
    lines = '{"role": "user", "content": "a"}\r\n' + long + '\n{"role": "user", "content": "ü"}'
    assert await asked(lines.encode(), input_format="stream-json") == ["a", "ü"]
    assert await asked(" a \r\n b\xff".encode("latin-1")) == ["a \r\n b\ufffd"]


def test_parts_other_than_text_are_kept() -> None:
    picture = ImagePart(MediaUrl("http://x/y.png"))
    shape = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}, {"type": "text", "text": "?"}]
    assert parse_prompt_line(json.dumps({"role": "user", "content": shape}).encode()) == (picture, TextPart("?"))


# --- waiting for tasks ------------------------------------------------------------------------------------------


def order(command: str, timeout_s: float = 60) -> BackgroundTaskSpec:
    return BackgroundTaskSpec(command, "a job", ("sh",), timeout_s)


async def waited(
    tasks: BackgroundTasks, *, ceiling: int = 60, tell: int = 99
) -> tuple[TasksTimedOut | None, list[str]]:
    """Wait with turns that tell the model of at most `tell` tasks; gives the result and the inputs of the turns."""
    conversation = await conversation_with(FakeModel([]))
    conversation = with_resources(
        conversation, background=BackgroundTaskRegistry(lambda: tasks, BackgroundSettings(print_wait_ceiling_s=ceiling))
    )
    inputs: list[str] = []

    async def run(text: str) -> None:
        inputs.append(text)
        for task in tasks.find_unannounced("llm")[:tell]:
            tasks.mark_announced(task.id, "llm")

    return await wait_for_tasks(conversation, run), inputs


async def test_without_tasks_waiting_ends_at_once() -> None:
    assert await waited(FakeTasks()) == (None, [])


async def test_remaining_notifications_get_another_turn() -> None:
    tasks = FakeTasks()
    for _ in range(3):
        tasks.start(order("exit 0"))
    assert await waited(tasks, tell=2) == (None, [TASK_ENDED_PROMPT, TASK_ENDED_PROMPT])


async def test_turn_without_notifications_is_not_repeated() -> None:
    tasks = FakeTasks()
    tasks.start(order("exit 0"))
    assert await waited(tasks, tell=0) == (None, [TASK_ENDED_PROMPT])


@pytest.mark.spec("R-148")
@pytest.mark.parametrize(("times", "ceiling", "seconds"), [((1, 0.2), 60, 1), ((100, 200), 1, 1)])
async def test_the_longest_task_and_the_ceiling_limit_the_waiting(
    times: tuple[float, float], ceiling: int, seconds: int
) -> None:
    tasks = FakeTasks()
    for time in times:
        tasks.start(order("hang", time))
    assert await waited(tasks, ceiling=ceiling) == (TasksTimedOut(seconds, 2), [TIMEOUT_PROMPT])
    assert {task.status for task in tasks.list_tasks()} == {"killed"}


# --- terminals --------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-238")
@pytest.mark.parametrize("sequence", TERMINAL_SEQUENCES, ids=ascii)
def test_no_format_lets_a_control_sequence_reach_a_terminal(sequence: str) -> None:
    said = f"a{sequence}b"
    events = [
        TurnBegin(said),
        StepBegin(1),
        TextPart(said),
        ToolCall("c1", Function("Shell", json.dumps({"command": said}))),
        ToolResult("c1", tool_error(said, said)),
        PlanDisplay(said, said),
        Notification("n", "task", said, "background_task", "t", said, said, "success", 1.0, {}),
        StepBegin(2),
        TextPart(said),
    ]
    for output in (
        TextOutput(key_argument, stdout_is_terminal=True),
        FinalMessageOutput(as_json=False, stdout_is_terminal=True),
        FinalMessageOutput(as_json=True, stdout_is_terminal=True),
        StreamJsonOutput(stdout_is_terminal=True),
    ):
        written = b"".join(output.render_event(event) for event in events) + output.render_end()
        written += output.render_failure(RunFailure(said)) + output.render_session(said)
        assert not TERMINAL_CONTROL.search(written.decode())


@given(st.text())
def test_lines_for_a_terminal_mean_the_same(said: str) -> None:
    output = StreamJsonOutput(stdout_is_terminal=True)
    lines = output.render_event(TextPart(said)) + output.render_end()
    assert [json.loads(line)["content"] for line in lines.splitlines()] == [said] * bool(lines)
