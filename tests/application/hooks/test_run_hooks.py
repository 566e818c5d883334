"""Hooks through a turn: what is fired when, who is asked, what a block does (runtime spec 7.5, wire spec 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kimi.application.control.steer import steer
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.hooks import hook_points
from kimi.application.hooks.session_hooks import session_hooks_lifespan
from kimi.application.ports import RunHook, ToolCallContext
from kimi.domain.content.message import Function, JsonObject, ToolCall, message_text
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.errors import APIStatusError, StateError
from kimi.domain.events.event import Event, HookResolved, HookTriggered, Notification, StepBegin, ToolResult
from kimi.domain.events.request import Answer, ApprovalAnswer, HookAnswer, HookRequest, Request
from kimi.domain.hook import ALLOW, CommandHook, HookSubscription
from kimi.domain.permissions.approval import Policy, Rule
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue, tool_error, tool_ok
from kimi.infrastructure.linear_regex import search_expression
from tests.support.conversations import Run, conversation_with, run, with_resources
from tests.support.fakes import FakeHookRunner, FakeModel, FakeTool, forever

pytestmark = pytest.mark.anyio

NO = HookAnswer("block", "no")


def call(name: str = "Tool", arguments: str = '{"a":1}') -> ToolCall:
    """A call with the id c1."""
    return ToolCall("c1", Function(name, arguments))


async def watched(
    model: FakeModel | None,
    tools: Sequence[FakeTool] = (),
    *,
    commands: Sequence[CommandHook] = (),
    runner: RunHook | None = None,
    subscriptions: Sequence[HookSubscription] = (),
    rules: tuple[Rule, ...] = (),
) -> Conversation:
    """A conversation with these hooks."""
    conversation = await conversation_with(model, tools, policy=Policy(rules=rules))
    conversation = with_resources(
        conversation,
        hooks=HookRegistry(
            commands, runner or FakeHookRunner(), search=search_expression, session_id="s1", work_dir="/w"
        ),
    )
    conversation.resources.hooks.subscribe(subscriptions)
    return conversation


def one_call(call_: ToolCall | None = None) -> FakeModel:
    """A model that makes one call and then says ok."""
    return FakeModel([[call_ or call()], [TextPart("ok")]])


def hooks_of(outcome: Run) -> list[HookTriggered | HookResolved]:
    """The hook events of a run, their durations left out."""
    found: list[HookTriggered | HookResolved] = []
    for event in outcome.events:
        if isinstance(event, HookTriggered):
            found.append(event)
        elif isinstance(event, HookResolved):
            assert event.duration_ms >= 0
            found.append(HookResolved(event.event, event.target, event.action, event.reason, 0))
    return found


def requests(outcome: Run) -> list[HookRequest]:
    """What the client was asked."""
    return [event for event in outcome.events if isinstance(event, HookRequest)]


def result(outcome: Run) -> ToolReturnValue:
    """The result of the only call."""
    return next(event for event in outcome.events if isinstance(event, ToolResult)).return_value


def saying(answer: Answer) -> Callable[[Request], Answer | None]:
    """Answer every request in the same way."""
    return lambda request: answer


# --- calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["", "not in this house"])
async def test_command_hook_blocks_tool_call(reason: str) -> None:
    tool, runner = FakeTool("Tool", action="edit"), FakeHookRunner({"check": HookAnswer("block", reason)})
    conversation = await watched(
        model := one_call(), [tool], commands=[CommandHook("PreToolUse", "check", "Too")], runner=runner
    )

    outcome = await run(conversation, "go")

    assert tool.ran == []
    assert runner.told == [
        (
            "check",
            {
                "hook_event_name": "PreToolUse",
                "session_id": "s1",
                "cwd": "/w",
                "tool_name": "Tool",
                "tool_input": {"a": 1},
                "tool_call_id": "c1",
            },
        )
    ]
    message = reason or "Blocked by PreToolUse hook"
    assert result(outcome) == tool_error(message, "Hook blocked")
    assert result(outcome).display == (BriefBlock("Hook blocked"),)
    assert message in message_text(model.asked[1].history[-1])
    assert hooks_of(outcome) == [
        HookTriggered("PreToolUse", "Tool", 1),
        HookResolved("PreToolUse", "Tool", "block", reason, 0),
    ]
    names = outcome.names
    assert names[2:7] == ["ToolCall", "StatusUpdate", "HookTriggered", "HookResolved", "ToolResult"]


@pytest.mark.parametrize(
    ("given", "runs"),
    [(HookAnswer("allow", "fine"), True), (NO, False), (ApprovalAnswer("reject"), True)],
)
async def test_client_hook_is_asked(given: Answer, runs: bool) -> None:
    tool = FakeTool("Tool", read_only=True)
    conversation = await watched(
        one_call(),
        [tool],
        subscriptions=[HookSubscription("mine", "PreToolUse"), HookSubscription("other", "Stop", "x")],
    )

    outcome = await run(conversation, "go", answer=saying(given))

    assert bool(tool.ran) is runs
    asked = requests(outcome)[0]
    assert (asked.subscription_id, asked.event, asked.target) == ("mine", "PreToolUse", "Tool")
    assert asked.input_data["tool_input"] == {"a": 1}
    assert outcome.names[2:8] == [
        "ToolCall", "StatusUpdate", "HookTriggered", "HookRequest", "HookResolved", "ToolResult",
    ]  # fmt: skip


APPROVED, ASK = HookAnswer("allow", "known good", "allow"), HookAnswer("allow", "", "ask")


@pytest.mark.parametrize(
    ("verdicts", "rules", "asked", "runs"),
    [
        ([APPROVED], (), False, True),
        ([ALLOW], (), True, True),
        ([APPROVED, ASK], (), True, True),
        ([APPROVED, NO], (), False, False),
        ([APPROVED], (Rule("ask", tool="Tool"),), True, True),
        ([APPROVED], (Rule("deny", tool="Tool"),), False, False),
    ],
)
async def test_hook_approves_a_call_unless_a_hook_or_rule_says_otherwise(
    verdicts: list[HookAnswer], rules: tuple[Rule, ...], asked: bool, runs: bool
) -> None:
    tool = FakeTool("Tool", action="edit")
    answers = {f"hook {number}": verdict for number, verdict in enumerate(verdicts)}
    commands = [CommandHook("PreToolUse", name) for name in answers]
    conversation = await watched(one_call(), [tool], commands=commands, runner=FakeHookRunner(answers), rules=rules)

    outcome = await run(conversation, "go", answer=saying(ApprovalAnswer("approve")))

    assert ("ApprovalRequest" in outcome.names) is asked
    assert bool(tool.ran) is runs
    action = "block" if NO in verdicts else "allow"
    assert [hook.action for hook in hooks_of(outcome) if isinstance(hook, HookResolved)] == [action]


async def test_hooks_run_concurrently_and_first_block_in_order_wins() -> None:
    """Each waits for the others to have begun; the last one answers first."""
    begun, order = anyio.Event(), list[str]()
    pending = {"one", "two", "client"}

    def arrive(name: str) -> None:
        pending.discard(name)
        if not pending:
            begun.set()

    async def runner(hook: CommandHook, payload: JsonObject) -> HookAnswer:
        arrive(hook.command)
        await begun.wait()
        for _ in range(20 if hook.command == "one" else 10):
            await anyio.lowlevel.checkpoint()
        order.append(hook.command)
        return HookAnswer("block", hook.command)

    def answer(request: Request) -> Answer | None:
        arrive("client")
        order.append("client")
        return HookAnswer("block", "client")

    twice = [CommandHook("PreToolUse", name) for name in ("one", "two", "one")]
    conversation = await watched(
        one_call(),
        [FakeTool("Tool")],
        commands=twice,
        runner=runner,
        subscriptions=[HookSubscription("c", "PreToolUse")],
    )
    outcome = await run(conversation, "go", answer=answer)
    assert order == ["client", "two", "one"]
    assert result(outcome).message == "one"
    assert hooks_of(outcome)[0] == HookTriggered("PreToolUse", "Tool", 3)


async def test_failing_hook_allows(caplog: pytest.LogCaptureFixture) -> None:
    async def runner(hook: CommandHook, payload: JsonObject) -> HookAnswer:
        raise RuntimeError("broken")

    tool = FakeTool("Tool")
    conversation = await watched(one_call(), [tool], commands=[CommandHook("PreToolUse", "x")], runner=runner)
    outcome = await run(conversation, "go")
    assert tool.ran
    assert hooks_of(outcome)[-1] == HookResolved("PreToolUse", "Tool", "allow", "", 0)
    assert "it allows" in caplog.text


async def test_unanswered_client_hook_allows_after_timeout() -> None:
    tool = FakeTool("Tool")
    conversation = await watched(
        one_call(),
        [tool],
        subscriptions=[HookSubscription("c", "PreToolUse", "", 0), HookSubscription("d", "Stop", "[")],
    )
    outcome = await run(conversation, "go")
    assert tool.ran
    assert [event.duration_ms >= 1000 for event in outcome.events if isinstance(event, HookResolved)] == [True]
    assert conversation.events.pending_requests.list_requests() == []


async def test_hooks_are_not_run_for_invalid_tool_calls() -> None:
    runner = FakeHookRunner({"x": NO})
    for wrong in (call("Nobody"), call(arguments="{")):
        conversation = await watched(
            one_call(wrong), [FakeTool("Tool")], commands=[CommandHook("PreToolUse", "x")], runner=runner
        )
        await run(conversation, "go")
    assert runner.told == []


async def test_cancel_ends_a_running_hook() -> None:
    tool = FakeTool("Tool")
    runner = FakeHookRunner(pause=forever)
    conversation = await watched(one_call(), [tool], commands=[CommandHook("PreToolUse", "x")], runner=runner)

    def react(conversation: Conversation, event: Event) -> None:
        if isinstance(event, HookTriggered) and conversation.turn is not None:
            conversation.turn.scope.cancel()

    outcome = await run(conversation, "go", react=react)
    assert outcome.status is not None
    assert outcome.status.status == "cancelled"
    assert tool.ran == []
    assert outcome.names[-5:] == ["HookTriggered", "HookResolved", "ToolResult", "StepInterrupted", "TurnEnd"]
    assert hooks_of(outcome)[-1] == HookResolved("PreToolUse", "Tool", "allow", "", 0)


async def test_disconnected_client_hooks_allow_without_new_requests() -> None:
    subscriptions = [HookSubscription("c", event) for event in ("PreToolUse", "Stop")]
    conversation = await watched(one_call(), [FakeTool("Tool")], subscriptions=subscriptions)

    def react(conversation: Conversation, event: Event) -> None:
        if isinstance(event, HookRequest):
            conversation.events.pending_requests.close()

    outcome = await run(conversation, "go", react=react)
    assert len(requests(outcome)) == 1
    assert {event.action for event in hooks_of(outcome) if isinstance(event, HookResolved)} == {"allow"}


async def fail(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
    """The body of a tool that reports an error."""
    return tool_error("e" * 3000, "Failed")


async def raise_(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
    """The body of a tool that breaks."""
    raise RuntimeError("broken")


async def speak(arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
    """The body of a tool that says much."""
    return tool_ok((TextPart("o" * 1500), ImagePart(MediaUrl("data:")), TextPart("p" * 1500)))


POST = [CommandHook("PostToolUse", "post"), CommandHook("PostToolUseFailure", "failure")]


@pytest.mark.parametrize(
    ("tool", "command", "details"),
    [
        (FakeTool("Tool", speak), "post", {"tool_output": "o" * 1500 + "\n" + "p" * 499}),
        (FakeTool("Tool"), "post", {"tool_output": "done"}),
        (FakeTool("Tool", fail), "failure", {"error": "e" * 2000}),
        (FakeTool("Tool", raise_), "failure", {"error": "Error running tool: broken"}),
    ],
)
async def test_post_tool_hooks_receive_tool_outcome(tool: FakeTool, command: str, details: dict[str, Any]) -> None:
    runner = FakeHookRunner({"post": NO, "failure": NO})
    conversation = await watched(one_call(), [tool], commands=POST, runner=runner)
    outcome = await run(conversation, "go")
    about = {"tool_name": "Tool", "tool_input": {"a": 1}, "tool_call_id": "c1"}
    event = "PostToolUse" if command == "post" else "PostToolUseFailure"
    common = {"hook_event_name": event, "session_id": "s1", "cwd": "/w"}
    assert runner.told == [(command, {**common, **about, **details})]
    assert outcome.names.index("ToolResult") < outcome.names.index("HookTriggered")
    assert outcome.status is not None
    assert outcome.status.status == "finished"


async def test_post_tool_hooks_are_not_run_for_refused_calls() -> None:
    runner = FakeHookRunner({"pre": NO})
    tools = [FakeTool("Tool", action="edit")]
    conversation = await watched(one_call(), tools, commands=POST, runner=runner)
    await run(conversation, "go", answer=saying(ApprovalAnswer("reject", "no")))
    conversation = await watched(one_call(), tools, commands=[*POST, CommandHook("PreToolUse", "pre")], runner=runner)
    await run(conversation, "go")
    assert [command for command, _ in runner.told] == ["pre"]


async def test_turn_does_not_wait_for_post_tool_hooks() -> None:
    """The turn ends first: it closes the batch on the stream, misses no answer of the client; the command goes on."""
    go_on, done = anyio.Event(), list[str]()

    async def runner(hook: CommandHook, payload: JsonObject) -> HookAnswer:
        await go_on.wait()
        done.append(hook.command)
        return NO

    conversation = await watched(
        one_call(),
        [FakeTool("Tool")],
        commands=POST,
        runner=runner,
        subscriptions=[HookSubscription("c", "PostToolUse")],
    )
    async with session_hooks_lifespan(conversation):
        outcome = await run(conversation, "go")
        assert outcome.names[-2:] == ["HookResolved", "TurnEnd"]
        assert hooks_of(outcome) == [
            HookTriggered("PostToolUse", "Tool", 2),
            HookResolved("PostToolUse", "Tool", "allow", "", 0),
        ]
        assert len(requests(outcome)) == 1
        assert (
            conversation.events.pending_requests.list_requests(),
            conversation.resources.hooks.detached_batches,
            done,
        ) == (
            [],
            [],
            [],
        )
        go_on.set()
    assert done == ["post"]


# --- prompts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["", "not now"])
@pytest.mark.parametrize("prompt", ["delete it", (TextPart("delete"), ImagePart(MediaUrl("data:")), TextPart("it"))])
async def test_prompt_hook_blocks_the_prompt(prompt: Any, reason: str) -> None:
    runner = FakeHookRunner({"check": HookAnswer("block", reason)})
    commands = [CommandHook("UserPromptSubmit", "check", "delete it"), CommandHook("Stop", "never")]
    conversation = await watched(model := FakeModel([]), commands=commands, runner=runner)

    outcome = await run(conversation, prompt)

    assert outcome.names == ["TurnBegin", "HookTriggered", "HookResolved", "TextPart", "TurnEnd"]
    assert outcome.events[3] == TextPart(reason or "Prompt blocked by hook.")
    assert outcome.events[1] == HookTriggered("UserPromptSubmit", "delete it", 1)
    assert outcome.status is not None
    assert outcome.status.status == "finished"
    assert (model.asked, conversation.history.messages, len(runner.told)) == ([], [], 1)
    assert runner.told[0][1]["prompt"] == "delete it"


async def test_commands_of_the_agent_can_be_blocked_too() -> None:
    conversation = await watched(
        None, commands=[CommandHook("UserPromptSubmit", "x", "^/clear")], runner=FakeHookRunner({"x": NO})
    )
    assert (await run(conversation, "/clear")).events[3] == TextPart("no")


# --- the end of a turn ------------------------------------------------------------------------------------------


async def test_stop_hook_continues_the_turn_once() -> None:
    runner = FakeHookRunner({"x": HookAnswer("block", "run the tests")})
    model = FakeModel([[TextPart("done")], [TextPart("tested")]])
    conversation = await watched(model, commands=[CommandHook("Stop", "x")], runner=runner)

    outcome = await run(conversation, "go")

    assert outcome.names == [
        "TurnBegin", "StepBegin", "TextPart", "StatusUpdate", "HookTriggered", "HookResolved",
        "StepBegin", "TextPart", "StatusUpdate", "HookTriggered", "HookResolved", "TurnEnd",
    ]  # fmt: skip
    assert [event.n for event in outcome.events if isinstance(event, StepBegin)] == [1, 1]
    assert [payload["stop_hook_active"] for _, payload in runner.told] == [False, True]
    assert [message.role for message in conversation.history.messages] == ["user", "assistant", "user", "assistant"]
    assert message_text(model.asked[1].history[-1]) == "run the tests"
    assert outcome.status is not None
    assert outcome.status.status == "finished"


@pytest.mark.parametrize("verdict", [ALLOW, HookAnswer("block", ""), HookAnswer("allow", "words")])
async def test_stop_hook_continues_only_on_block_with_reason(verdict: HookAnswer) -> None:
    runner = FakeHookRunner({"x": verdict})
    conversation = await watched(FakeModel([[TextPart("done")]]), commands=[CommandHook("Stop", "x")], runner=runner)
    assert (await run(conversation, "go")).error is None
    assert len(runner.told) == 1


async def test_stop_hook_runs_after_a_command_without_model() -> None:
    runner = FakeHookRunner({"x": NO})
    conversation = await watched(None, commands=[CommandHook("Stop", "x")], runner=runner)
    assert (await run(conversation, "/yolo")).error is None
    assert len(runner.told) == 1


async def test_steer_received_during_stop_hook_continues_the_turn() -> None:
    model = FakeModel([[TextPart("done")], [TextPart("more")]])
    conversation = await watched(model, subscriptions=[HookSubscription("c", "Stop")])
    answered: list[str] = []

    def answer(request: Request) -> Answer | None:
        if not answered:
            steer(conversation, "and this")
        answered.append(request.id)
        return ALLOW

    outcome = await run(conversation, "go", answer=answer)
    assert outcome.names.count("SteerInput") == 1
    assert message_text(model.asked[1].history[-1]) == "and this"
    assert len(answered) == 2
    with pytest.raises(StateError):
        steer(conversation, "late")


async def test_failed_turn_runs_stop_failure_hook_and_still_fails() -> None:
    runner = FakeHookRunner({"x": NO})
    model = FakeModel([[APIStatusError(400, "bad request")]])
    commands = [CommandHook("StopFailure", "x", "^APIStatusError$"), CommandHook("Stop", "never")]
    conversation = await watched(model, commands=commands, runner=runner)
    outcome = await run(conversation, "go")
    assert isinstance(outcome.error, APIStatusError)
    [(_, told)] = runner.told
    assert (told["error_type"], told["error_message"]) == ("APIStatusError", "bad request")
    assert outcome.names[-4:] == ["HookTriggered", "HookResolved", "StepInterrupted", "TurnEnd"]


# --- the session, and what others fire --------------------------------------------------------------------------


async def test_session_start_and_end_hooks_run() -> None:
    runner = FakeHookRunner()
    commands = [CommandHook("SessionStart", "s", "startup"), CommandHook("SessionEnd", "e", "exit")]
    conversation = await watched(None, commands=commands, runner=runner)
    conversation.resources.hooks.subscribe([HookSubscription("c", "SessionEnd")])
    async with session_hooks_lifespan(conversation):
        await anyio.lowlevel.checkpoint()
        assert conversation.is_empty
    common = {"session_id": "s1", "cwd": "/w"}
    assert runner.told == [
        ("s", {"hook_event_name": "SessionStart", **common, "source": "startup"}),
        ("e", {"hook_event_name": "SessionEnd", **common, "reason": "exit"}),
    ]
    assert conversation.is_empty


async def test_session_end_hooks_are_bounded_and_errors_propagate() -> None:
    runner = FakeHookRunner(pause=forever)
    commands = [CommandHook("SessionStart", "s"), CommandHook("SessionEnd", "e")]
    conversation = await watched(None, commands=commands, runner=runner)
    with anyio.fail_after(4), pytest.raises(ZeroDivisionError):
        async with session_hooks_lifespan(conversation, lambda: 0.1):
            raise ZeroDivisionError
    assert {command for command, _ in runner.told} == {"s", "e"}


@pytest.mark.spec("R-141")
async def test_payloads_of_subagent_compact_and_notification_hooks() -> None:
    runner = FakeHookRunner()
    events = ("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification")
    conversation = await watched(None, commands=[CommandHook(event, "x") for event in events], runner=runner)
    note = Notification("n", "task", "task.completed", "task", "t", "Title", "Body", "info", 1.0, {})
    await hook_points.run_subagent_start_hooks(conversation, "coder", "p" * 600)
    await hook_points.fire_subagent_stop_hooks(conversation, "coder", "r" * 600)
    await hook_points.run_pre_compact_hooks(conversation, "auto", 7)
    await hook_points.fire_post_compact_hooks(conversation, "manual-with-prompt", 8)
    await hook_points.fire_notification_hooks(conversation, note, "wire")
    common = {"session_id": "s1", "cwd": "/w"}
    assert [payload for _, payload in runner.told] == [
        {"hook_event_name": "SubagentStart", **common, "agent_name": "coder", "prompt": "p" * 500},
        {"hook_event_name": "SubagentStop", **common, "agent_name": "coder", "response": "r" * 500},
        {"hook_event_name": "PreCompact", **common, "trigger": "auto", "token_count": 7},
        {"hook_event_name": "PostCompact", **common, "trigger": "manual-with-prompt", "estimated_token_count": 8},
        {
            "hook_event_name": "Notification",
            **common,
            "sink": "wire",
            "notification_type": "task.completed",
            "title": "Title",
            "body": "Body",
            "severity": "info",
        },
    ]


async def test_subscriptions_are_replaced_and_nonsense_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    hooks = HookRegistry([CommandHook("Stop", "x", "("), CommandHook("Stop", "x", "^(?!a)")], search=search_expression)
    assert "'(' is not a regular expression" in caplog.text
    assert "fires for every target: its matcher '^(?!a)'" in caplog.text
    hooks.subscribe([HookSubscription("a", "Lunch"), HookSubscription("b", "PreToolUse")])
    assert "Lunch" in caplog.text
    assert hooks.watched_events == {"Stop", "PreToolUse"}
    hooks.subscribe([HookSubscription("c", "Notification")])
    assert hooks.watched_events == {"Stop", "Notification"}
    assert [hook.id for hook in hooks.subscriptions] == ["c"]


async def test_command_hook_without_runner_allows(caplog: pytest.LogCaptureFixture) -> None:
    conversation = await conversation_with(FakeModel([[TextPart("ok")]]))
    conversation = with_resources(conversation, hooks=HookRegistry([CommandHook("UserPromptSubmit", "x")]))
    assert (await run(conversation, "go")).error is None
    assert "nothing here can run" in caplog.text
