"""Agent with `run_in_background`: a subagent beside the turns of its parent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from kimi.application.agents.background_subagents import StartedSubagent, start_in_background
from kimi.application.agents.run_subagent import SubagentResult, SubagentTask
from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.background_tasks import BackgroundTaskRegistry, stop_tasks_on_exit, wait_for_task
from kimi.application.hooks.session_hooks import session_hooks_lifespan
from kimi.application.settings.settings import BackgroundSettings
from kimi.application.step.compact import compact
from kimi.domain.background import BackgroundTask
from kimi.domain.content.message import Function, ToolCall, message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError
from kimi.domain.events.event import ApprovalResponse, Event, Notification, SubagentEvent, ToolResult
from kimi.domain.events.request import ApprovalAnswer, ApprovalRequest
from kimi.domain.permissions.approval import Policy
from tests.support.background_tasks import FakeTasks
from tests.support.conversations import Run, run
from tests.support.fakes import FakeModel, forever
from tests.support.subagents import CommandTool, Crew, crew_with

pytestmark = pytest.mark.anyio

LONG = "The report. " * 20


def call(**arguments: object) -> ToolCall:
    """A call of Agent in the background."""
    given = {"description": "look around", "prompt": "look", "run_in_background": True, **arguments}
    return ToolCall("c1", Function("Agent", json.dumps(given)))


@asynccontextmanager
async def beside(crew: Crew, tasks: FakeTasks, **settings: int) -> AsyncGenerator[FakeTasks, None]:
    """The conversation of the crew as the container opens it: tasks end with it."""
    registry = BackgroundTaskRegistry(lambda: tasks, BackgroundSettings.model_validate(settings))
    parent = crew.change_resources(background=registry)
    async with session_hooks_lifespan(parent), stop_tasks_on_exit(parent.resources.background):
        yield tasks


async def ended(tasks: FakeTasks) -> BackgroundTask:
    """The only task, when it has ended."""
    task = await wait_for_task(tasks, list(tasks.held)[-1], 5, 0.005)
    assert task is not None
    assert not task.is_active
    return task


def in_words(report: SubagentResult) -> str:
    """A failure in words."""
    return f"{report.outcome}: {report.text}"


@pytest.mark.spec("R-123")
async def test_the_call_returns_at_once_and_the_end_is_notified_in_a_later_turn() -> None:
    model = FakeModel([[call()], [TextPart("started")], [TextPart("read it")]])
    first_turn_over = anyio.Event()
    crew = await crew_with(model, by_type={"coder": FakeModel([[first_turn_over.wait, TextPart(LONG)]])})
    async with beside(crew, FakeTasks()) as tasks:
        first = await run(crew.parent, "go")
        first_turn_over.set()
        task = await ended(tasks)
        second = await run(crew.parent, "and?")

    result = next(event for event in first.events if isinstance(event, ToolResult)).return_value
    lines = str(result.output).splitlines()
    assert result.message == "Background task started."
    assert lines[0] == f"task_id: {task.id}"
    assert "kind: agent" in lines
    assert "automatic_notification: true" in lines
    agent_id = next(line.split(": ")[1] for line in lines if line.startswith("agent_id"))
    assert any(line.startswith(f'resume_hint: Use Agent(resume="{agent_id}", prompt="...")') for line in lines)
    assert (task.status, task.kind) == ("completed", "agent")
    assert tasks.read_output(task.id, 10_000).text == f"agent_id: {agent_id}\n\n{LONG.strip()}"
    assert not [event for event in first.events + second.events if isinstance(event, SubagentEvent)]
    (note,) = [event for event in second.events if isinstance(event, Notification)]
    assert (note.source_id, note.category, note.type) == (task.id, "agent", "task.completed")
    read = [message_text(message) for message in model.asked[2].history]
    assert any("<notification" in text and LONG.strip() in text for text in read)


async def start(
    crew: Crew, timeout_s: float | None = None, resume: str | None = None
) -> StartedSubagent | SubagentResult:
    """Start a subagent in the background, without a turn."""
    order = SubagentTask("look around", "look", "coder", resume_agent_id=resume, timeout_s=timeout_s)
    return start_in_background(crew.subagents, order, "c1", in_words)


@pytest.mark.spec("T-112")
async def test_approval_outlives_turn_and_is_resolved_when_task_is_stopped() -> None:
    tool = CommandTool("Run")
    model = FakeModel([[call()], [TextPart("started")]])
    turn_over = anyio.Event()
    child = FakeModel([[turn_over.wait, ToolCall("x", Function("Run", "{}"))]])
    crew = await crew_with(model, [tool], by_type={"coder": child}, policy=Policy())
    async with beside(crew, FakeTasks()) as tasks:
        await run(crew.parent, "go")
        turn_over.set()
        seen = await until_request(crew)
        (request,) = [event for event in seen if isinstance(event, ApprovalRequest)]
        (task,) = tasks.held.values()
        assert (request.source_kind, request.source_id) == ("background_agent", task.id)
        assert request.agent_id is not None
        assert task.status == "awaiting_approval"
        assert crew.parent.turn is None
        tasks.stop(task.id, "no longer needed")
        task = await ended(tasks)
        assert (task.status, task.reason) == ("killed", "no longer needed")
        assert crew.parent.events.pending_requests.list_requests() == []
        events = [delivery.event for delivery in await crew.parent.events.channel.receive()]
        assert ApprovalResponse(request.id, "reject", "") in events
    assert tool.ran == []


async def until_request(crew: Crew) -> list[Event]:
    """The events up to the first request."""
    events: list[Event] = []
    with anyio.fail_after(5):
        while not any(isinstance(event, ApprovalRequest) for event in events):
            events += [delivery.event for delivery in await crew.parent.events.channel.receive()]
    return events


async def test_approval_between_turns_lets_task_continue() -> None:
    tool = CommandTool("Run")
    child = FakeModel([[ToolCall("x", Function("Run", "{}"))], [TextPart(LONG)]])
    crew = await crew_with(FakeModel([]), [tool], by_type={"coder": child}, policy=Policy())
    async with beside(crew, FakeTasks()) as tasks:
        await start(crew)
        (request,) = [event for event in await until_request(crew) if isinstance(event, ApprovalRequest)]
        resolve_request(crew.parent, request.id, ApprovalAnswer("approve"))
        task = await ended(tasks)
    assert task.status == "completed"
    assert len(tool.ran) == 1


async def test_running_subagent_cannot_be_resumed() -> None:
    child = FakeModel([[forever, TextPart("never")], [TextPart(LONG)]])
    crew = await crew_with(FakeModel([]), by_type={"coder": child})
    async with beside(crew, FakeTasks()) as tasks:
        started = await start(crew)
        assert isinstance(started, StartedSubagent)
        await anyio.wait_all_tasks_blocked()
        assert child.asked
        again = await start(crew, resume=started.agent_id)
        assert isinstance(again, SubagentResult)
        assert again.outcome == "still_running"
        tasks.stop(started.task.id, "enough")
        assert (await ended(tasks)).status == "killed"
        resumed = await start(crew, resume=started.agent_id)
        assert isinstance(resumed, StartedSubagent)
        assert resumed.resumed
        at_once = await start(crew, resume=started.agent_id)
        assert at_once == SubagentResult("still_running", "running_background", started.agent_id)
        assert (await ended(tasks)).status == "completed"


async def test_failure_timeout_and_conversation_end_have_distinct_outcomes() -> None:
    for script, timeout_s, expected in (
        ([APIStatusError(400, "no")], None, ("failed", "api_error: no", False)),
        ([forever], 0.02, ("failed", "timed_out: ", True)),
        ([forever], None, ("killed", "The program has ended.", False)),
    ):
        crew = await crew_with(FakeModel([]), by_type={"coder": FakeModel([list(script)])})
        async with beside(crew, FakeTasks()) as tasks:
            await start(crew, timeout_s=timeout_s)
            if expected[0] == "failed":
                await ended(tasks)
            else:
                await anyio.sleep(0.01)
        (task,) = tasks.held.values()
        assert (task.status, task.reason, task.timed_out) == expected


async def test_the_default_time_is_configured_and_the_limit_of_tasks_counts() -> None:
    crew = await crew_with(FakeModel([]), by_type={"coder": FakeModel([[forever]] * 3)})
    async with beside(crew, FakeTasks(limit=1), agent_task_timeout_s=77) as tasks:
        started = await start(crew)
        assert isinstance(started, StartedSubagent)
        assert started.task.timeout_s == 77
        refused = await start(crew)
        assert isinstance(refused, SubagentResult)
        assert (refused.outcome, refused.text) == ("failed", "Too many background tasks are already running.")
        tasks.stop(started.task.id, "enough")


async def test_model_gets_error_when_background_tasks_are_unavailable() -> None:
    crew = await crew_with(FakeModel([[call()], [TextPart("well")]]))
    outcome: Run = await run(crew.parent, "go")
    result = next(event for event in outcome.events if isinstance(event, ToolResult)).return_value
    assert result.is_error
    assert result.message == "Failed to run agent: background tasks are not available here"


async def test_a_compacted_context_lists_the_active_tasks() -> None:
    model = FakeModel([[TextPart("one")], [TextPart("two")], [TextPart("three")], [TextPart("the summary")]])
    crew = await crew_with(model, by_type={"coder": FakeModel([[forever]])})
    async with beside(crew, FakeTasks()) as tasks:
        for text in ("a", "b", "c"):
            await run(crew.parent, text)
        await start(crew)
        await compact(crew.parent, model, "manual")
        last = message_text(crew.parent.history.messages[-1])
        (task,) = tasks.held.values()
        assert f"- {task.id} (" in last
        assert "look around" in last
