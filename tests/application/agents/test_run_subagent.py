"""Subagents over fakes: what the client sees, what is stored, what the model reads (runtime spec 6.5, 6.6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kimi.application.agents.run_subagent import (
    CONTINUATION_PROMPT,
    SubagentTask,
    run_subagent,
)
from kimi.application.codec.envelope import encode_event
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.ports import ResponseEnd, SessionFiles
from kimi.domain.agents.subagent import SubagentRecord
from kimi.domain.content.message import Function, Message, ToolCall, ToolCallPart, message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError, ChatProviderError
from kimi.domain.events.event import (
    ApprovalResponse,
    Event,
    StatusUpdate,
    StepBegin,
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import ApprovalRequest
from kimi.domain.hook import CommandHook
from kimi.domain.tools.tool import CANCELLED
from kimi.domain.turn import TokenUsage, TurnLimits, TurnStatus
from kimi.infrastructure.store.memory import MemoryStore
from kimi.infrastructure.tools.dialog.subagents import format_agent_result
from tests.support.conversations import run
from tests.support.fakes import FakeHookRunner, FakeModel, forever
from tests.support.subagent_calls import (
    DONE,
    REPORT,
    YES,
    agent,
    asked,
    brief,
    command,
    facts,
    failure,
    inner,
    result,
    starting,
)
from tests.support.subagents import CommandTool, crew_with

pytestmark = pytest.mark.anyio


async def begun() -> SessionFiles:
    """A new session in memory."""
    return await MemoryStore("/w").create("s1")


@pytest.mark.spec("R-122")
async def test_events_are_wrapped_and_requests_are_not() -> None:
    pieces = [TextPart("Let me "), TextPart("see."), ToolCall("c1", Function("Run", "")), ToolCallPart("{}")]
    model = FakeModel([[agent()], pieces, [TextPart(REPORT)], DONE])
    crew = await crew_with(model, [CommandTool("Run")])

    outcome = await run(crew.parent, "go", answer=YES)

    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert inner(outcome) == [
        TurnBegin("look"),
        StepBegin(1),
        TextPart("Let me see."),
        ToolCall("c1", Function("Run", "{}")),
        StatusUpdate(plan_mode=False),
        inner(outcome)[5],
        StepBegin(2),
        TextPart(REPORT),
        StatusUpdate(plan_mode=False),
        TurnEnd(),
    ]
    assert isinstance(inner(outcome)[5], ToolResult)
    wrapped = [event for event in outcome.events if isinstance(event, SubagentEvent)]
    ids = {(event.parent_tool_call_id, event.agent_id, event.subagent_type) for event in wrapped}
    agent_id = facts(result(outcome))["agent_id"]
    assert ids == {("p1", agent_id, "coder")}
    for event in wrapped:
        payload = json.loads(encode_event(event))["payload"]
        assert payload["parent_tool_call_id"] == payload["task_tool_call_id"] == "p1"
    (request,) = asked(outcome)
    assert (request.tool_call_id, request.agent_id, request.subagent_type) == ("c1", agent_id, "coder")
    assert request.source_kind == "foreground_turn"
    assert ApprovalResponse(request.id, "approve") in outcome.events
    assert outcome.names[-1] == "TurnEnd"


@pytest.mark.spec("T-89", "R-123")
async def test_result_contains_agent_id_and_last_message() -> None:
    crew = await crew_with(FakeModel([[agent()], [TextPart(REPORT)], DONE]))

    value = result(await run(crew.parent, "go"))

    found = facts(value)
    assert len(found["agent_id"]) == 9
    assert found["agent_id"].startswith("a")
    assert value.message == ""
    assert value.output == (
        f"agent_id: {found['agent_id']}\nresumed: false\nactual_subagent_type: coder\nstatus: completed\n\n"
        f"[summary]\n{REPORT.strip()}"
    )


async def test_parent_stores_call_and_subagent_stores_its_own_messages() -> None:
    crew = await crew_with(FakeModel([[agent()], [TextPart(REPORT)], DONE]))

    outcome = await run(crew.parent, "go")

    parent = [record.role for record in crew.parent.files.load_context() if isinstance(record, Message)]
    assert parent == ["user", "assistant", "tool", "assistant"]
    (agent_id,) = crew.parent.files.list_subagent_ids()
    assert agent_id == facts(result(outcome))["agent_id"]
    child = crew.parent.files.subagent_files(agent_id)
    assert child.record == SubagentRecord(agent_id, "coder", "completed", "look around", None, 1000.0, 1000.0)
    assert [json.loads(line)["type"] for line in child.events()] == [
        "TurnBegin",
        "StepBegin",
        "ContentPart",
        "StatusUpdate",
        "TurnEnd",
    ]
    assert crew.parent.files.state.custom_title == "go"
    assert child.state.custom_title is None


async def test_slash_text_in_subagent_prompt_is_not_a_command() -> None:
    crew = await crew_with(FakeModel([[agent(prompt="/clear")], [TextPart(REPORT)], DONE]))
    assert facts(result(await run(crew.parent, "go")))["summary"] == REPORT.strip()


async def test_new_explorer_gets_git_context() -> None:
    model = FakeModel([[agent(subagent_type="explore")], [TextPart(REPORT)], DONE])
    crew = await crew_with(model)
    await run(crew.parent, "go")
    assert message_text(model.asked[1].history[0]) == "<git-context>\nBranch: main\n</git-context>\n\nlook"


@pytest.mark.spec("T-89")
async def test_short_answer_triggers_one_followup_request() -> None:
    model = FakeModel([[agent()], [TextPart("done")], [TextPart("really")], DONE])
    crew = await crew_with(model)

    outcome = await run(crew.parent, "go")

    assert facts(result(outcome))["summary"] == "really"
    assert [event for event in inner(outcome) if isinstance(event, TurnBegin)] == [
        TurnBegin("look"),
        TurnBegin(CONTINUATION_PROMPT),
    ]


async def test_short_answer_is_kept_when_followup_fails() -> None:
    crew = await crew_with(FakeModel([[agent()], [TextPart("done")], [ChatProviderError("gone")], DONE]))
    assert facts(result(await run(crew.parent, "go")))["summary"] == "done"


@pytest.mark.parametrize(
    ("error", "message", "short"),
    [
        (
            APIStatusError(400, "too odd"),
            "LLM API error (HTTP 400) when running agent: too odd",
            "API error (400)",
        ),
        (ChatProviderError("gone"), "LLM provider error when running agent: gone", "LLM provider error"),
        (RuntimeError("boom"), "Failed to run agent: boom", "Agent failed"),
    ],
)
async def test_subagent_failure_is_an_error_result_for_the_model(error: Exception, message: str, short: str) -> None:
    crew = await crew_with(FakeModel([[agent()], [error], DONE]))

    outcome = await run(crew.parent, "go")

    assert failure(outcome) == (message, short)
    assert outcome.status == TurnStatus("finished", stop_reason="unknown")
    assert inner(outcome)[-1] == TurnEnd()
    (agent_id,) = crew.parent.files.list_subagent_ids()
    record = crew.parent.files.subagent_files(agent_id).record
    assert record is not None
    assert record.status == "failed"


@pytest.mark.spec("T-89")
async def test_step_limit_fails_the_subagent_call() -> None:
    model = FakeModel([[agent()], [command()], [command("c2", "pwd")], DONE])
    crew = await crew_with(model, [CommandTool("Run")], limits=TurnLimits(max_steps=2))
    outcome = await run(crew.parent, "go", answer=YES)
    assert failure(outcome) == (
        "Max steps 2 reached when running agent. Please try splitting the task into smaller subtasks.",
        "Max steps reached",
    )


@pytest.mark.spec("T-89", "R-123")
async def test_timeout_fails_the_subagent() -> None:
    crew = await crew_with(FakeModel([[forever]]))
    order = SubagentTask("look around", "look", "coder", timeout_s=0.01)
    report = await run_subagent(crew.subagents, order, "p1")
    assert report.outcome == "timed_out"
    told = format_agent_result(replace(report, limit_or_status=30), "coder")
    assert (told.message, brief(told)) == ("Agent timed out after 30s.", "Agent timed out (30s)")
    record = crew.parent.files.subagent_files(report.agent_id).record
    assert record is not None
    assert record.status == "failed"


@pytest.mark.spec("T-89")
@pytest.mark.parametrize(
    ("arguments", "message", "short"),
    [
        ({"subagent_type": "poet"}, "Unknown subagent type: poet", "Invalid subagent type"),
        ({"model": "huge"}, "Unknown model alias: huge", "Invalid model alias"),
        ({"resume": "a00000000"}, "Failed to run agent: there is no agent instance a00000000", "Agent failed"),
        ({"resume": "../x"}, "Failed to run agent: there is no agent instance ../x", "Agent failed"),
    ],
)
async def test_unknown_subagent_arguments_are_refused(
    arguments: Mapping[str, object], message: str, short: str
) -> None:
    crew = await crew_with(FakeModel([[agent(**arguments)], DONE]))
    outcome = await run(crew.parent, "go")
    assert failure(outcome) == (message, short)
    assert inner(outcome) == []
    assert list(crew.parent.files.list_subagent_ids()) == []


@pytest.mark.spec("R-123")
async def test_model_alias_selects_the_subagent_model() -> None:
    fast = FakeModel([[TextPart(REPORT)]], name="fast")
    crew = await crew_with(FakeModel([[agent(model="fast")], DONE]), models={"fast": fast})
    assert facts(result(await run(crew.parent, "go")))["summary"] == REPORT.strip()
    assert len(fast.asked) == 1


@pytest.mark.spec("R-324")
async def test_subagents_that_name_no_model_use_the_one_for_subagents() -> None:
    usage = ResponseEnd("m", TokenUsage(input_other=7, output=3), "end")
    small = FakeModel([[TextPart(REPORT), usage]], name="small")
    fast = FakeModel([[TextPart(REPORT)]], name="fast")
    both = [agent(), agent(model="fast")]
    crew = await crew_with(FakeModel([[both[0]], [both[1]], DONE]), models={"fast": fast, "small": small})
    crew.subagents.default_model = "small"
    await run(crew.parent, "go")
    assert (len(small.asked), len(fast.asked)) == (1, 1)
    assert crew.parent.models.usage.figures.turn.tokens == TokenUsage(input_other=7, output=3)


@pytest.mark.spec("T-89", "R-124", "R-123")
async def test_subagent_resumes_after_restart_with_its_prompt_and_history() -> None:
    store = MemoryStore("/w")
    first = await crew_with(FakeModel([[agent()], [TextPart(REPORT)], DONE]), files=await store.create("s1"))
    agent_id = facts(result(await run(first.parent, "go")))["agent_id"]
    first.parent.files.close()

    files = await store.open("s1")
    assert files is not None
    model = FakeModel([[agent(resume=agent_id, subagent_type="explore", prompt="go on")], [TextPart(REPORT)], DONE])
    second = await crew_with(model, files=files)
    found = facts(result(await run(second.parent, "more")))

    assert (found["agent_id"], found["resumed"]) == (agent_id, "true")
    assert (found["requested_subagent_type"], found["actual_subagent_type"]) == ("explore", "coder")
    assert [message_text(message) for message in model.asked[1].history] == ["look", REPORT, "go on"]
    assert model.asked[1].system == "You are a coder."
    assert (first.prompts, second.prompts) == (["coder"], [])
    assert list(files.list_subagent_ids()) == [agent_id]


@pytest.mark.spec("T-89", "R-123")
async def test_running_subagent_refuses_concurrent_resume() -> None:
    crew = await crew_with(FakeModel([[agent()], [TextPart(REPORT)], DONE]))
    agent_id = facts(result(await run(crew.parent, "go")))["agent_id"]
    both = [agent("p2", resume=agent_id), agent("p3", resume=agent_id)]
    assert isinstance(crew.parent.model, FakeModel)
    crew.parent.model.scripts += [both, [TextPart(REPORT)], DONE]

    outcome = await run(crew.parent, "both")

    assert facts(result(outcome, "p2"))["resumed"] == "true"
    still = f"Agent instance {agent_id} is still running_foreground and cannot be resumed concurrently."
    assert failure(outcome, "p3") == (f"Failed to run agent: {still}", "Agent failed")


@pytest.mark.spec("T-29")
async def test_parallel_subagents_do_not_mix() -> None:
    coder = FakeModel([[command("c1", "one")], [TextPart("First. " + REPORT)]])
    explorer = FakeModel([[command("c1", "two")], [TextPart("Second. " + REPORT)]])
    calls = [agent("p1"), agent("p2", subagent_type="explore"), command("top", "zero")]
    tool = CommandTool("Run")
    crew = await crew_with(FakeModel([calls, DONE]), [tool], by_type={"coder": coder, "explore": explorer})

    outcome = await run(crew.parent, "go", answer=YES)

    assert facts(result(outcome, "p1"))["summary"].startswith("First.")
    assert facts(result(outcome, "p2"))["summary"].startswith("Second.")
    contexts = {context.raw_arguments: context for context in tool.contexts}
    zero, one, two = (contexts[json.dumps({"command": line})] for line in ("zero", "one", "two"))
    assert (zero.call_id, zero.agent_id, zero.subagent_type) == ("top", None, None)
    assert (one.call_id, one.agent_id, one.subagent_type) == ("c1", facts(result(outcome, "p1"))["agent_id"], "coder")
    assert (two.call_id, two.agent_id, two.subagent_type) == ("c1", facts(result(outcome, "p2"))["agent_id"], "explore")
    assert len({zero.turn_id, one.turn_id, two.turn_id}) == 3
    assert {one.session_id, two.session_id} == {crew.parent.id}


@pytest.mark.spec("T-90")
async def test_a_subagent_starts_no_subagents() -> None:
    crew = await crew_with(FakeModel([[agent()], [agent("n1")], [TextPart(REPORT)], DONE]))

    outcome = await run(crew.parent, "go")

    (nested,) = [one.return_value for one in inner(outcome) if isinstance(one, ToolResult)]
    assert (nested.is_error, nested.message) == (True, "Subagents cannot launch other subagents.")
    assert brief(nested) == "Agent unavailable"
    assert len(crew.children) == 1


async def test_cancelled_subagent_can_be_resumed() -> None:
    async def cancel(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ApprovalRequest) and event.tool_call_id == "c2" and conversation.turn:
            conversation.turn.scope.cancel()

    model = FakeModel([[agent()], [command(), command("c2", "pwd")]])
    crew = await crew_with(model, [CommandTool("Run")])

    outcome = await run(crew.parent, "go", react=cancel)

    assert outcome.status == TurnStatus("cancelled")
    cut = [one for one in inner(outcome) if isinstance(one, ToolResult)]
    assert cut == [ToolResult("c1", CANCELLED), ToolResult("c2", CANCELLED)]
    assert inner(outcome)[-1] == TurnEnd()
    assert result(outcome) == CANCELLED
    assert [one.response for one in outcome.events if isinstance(one, ApprovalResponse)] == ["reject", "reject"]
    assert crew.parent.events.pending_requests.list_requests() == []
    (agent_id,) = crew.parent.files.list_subagent_ids()
    child = crew.parent.files.subagent_files(agent_id)
    assert child.record is not None
    assert child.record.status == "killed"
    assert crew.subagents.running_ids == set()
    # It can go on: every call has its answer.
    model.scripts += [[agent("p2", resume=agent_id)], [TextPart(REPORT)], DONE]
    assert facts(result(await run(crew.parent, "go on"), "p2"))["resumed"] == "true"


async def test_client_disconnect_rejects_subagent_requests() -> None:
    async def close(conversation: Conversation, event: Event) -> None:
        if isinstance(event, ApprovalRequest):
            conversation.events.pending_requests.close()

    crew = await crew_with(FakeModel([[agent()], [command()]]), [CommandTool("Run")])
    outcome = await run(crew.parent, "go", react=close)
    assert outcome.status == TurnStatus("cancelled")


# --- the older tools --------------------------------------------------------------------------------------------


def task(call_id: str = "p1", name: str = "coder") -> ToolCall:
    """A call of Task."""
    return starting("Task", call_id, {"subagent_name": name})


@pytest.mark.spec("T-91", "R-120")
async def test_task_tool_validates_parameters_and_returns_result() -> None:
    model = FakeModel([[task("p1"), task("p2"), task("p3", "poet")], DONE])
    coder = FakeModel([[command()], [command()], [TextPart("short")], [TextPart(REPORT)], [TextPart(REPORT)]])
    crew = await crew_with(model, [CommandTool("Run")], by_type={"coder": coder})

    outcome = await run(crew.parent, "go", answer=YES)

    for call_id in ("p1", "p2"):  # in parallel, one of them with a short answer
        value = result(outcome, call_id)
        assert (value.is_error, value.output, value.message) == (False, REPORT.strip(), "")
    assert failure(outcome, "p3") == ("Subagent not found: poet", "Subagent not found")
    assert len([one for one in inner(outcome) if one == TurnBegin(CONTINUATION_PROMPT)]) == 1
    assert len(asked(outcome)) == 2
    wrapped = [json.loads(encode_event(one))["payload"] for one in outcome.events if isinstance(one, SubagentEvent)]
    assert {one["parent_tool_call_id"] for one in wrapped} == {"p1", "p2"}
    assert all(one["task_tool_call_id"] == one["parent_tool_call_id"] for one in wrapped)

    limited = await crew_with(
        FakeModel([[task()], [command()], DONE]), [CommandTool("Run")], limits=TurnLimits(max_steps=1)
    )
    outcome = await run(limited.parent, "go", answer=YES)
    assert failure(outcome) == (
        "Max steps 1 reached when running subagent. Please try splitting the task into smaller subtasks.",
        "Max steps reached",
    )


@pytest.mark.spec("R-121")
async def test_model_can_create_a_subagent_type() -> None:
    def create(call_id: str) -> ToolCall:
        return ToolCall(call_id, Function("CreateSubagent", '{"name": "poet", "system_prompt": "You rhyme."}'))

    model = FakeModel([[create("p1")], [create("p2")], [task("p3", "poet")], [TextPart(REPORT)], DONE])
    crew = await crew_with(model)

    outcome = await run(crew.parent, "go")

    made = result(outcome, "p1")
    assert (made.output, made.message) == (
        "Available subagents: coder, explore, poet",
        "Subagent 'poet' created successfully.",
    )
    assert failure(outcome, "p2") == ("Subagent with name 'poet' already exists.", "Subagent already exists")
    assert result(outcome, "p3").output == REPORT.strip()
    assert model.asked[3].system == "You rhyme."


async def test_subagent_start_and_stop_hooks_run() -> None:
    crew = await crew_with(FakeModel([[agent()], [TextPart(REPORT)], DONE]))
    runner = FakeHookRunner()
    watched = [CommandHook("SubagentStart", "note"), CommandHook("SubagentStop", "note"), CommandHook("Stop", "note")]
    crew.change_resources(hooks=HookRegistry(watched, runner, session_id="s1", work_dir="/w"))

    await run(crew.parent, "go")

    about = [(told["hook_event_name"], told.get("agent_name")) for _, told in runner.told]
    assert about == [("SubagentStart", "coder"), ("SubagentStop", "coder"), ("Stop", None)]
