"""`open_agent`: turns, their end, approvals, replaced parts, several sessions."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from kimi.application.codec.envelope import encode_event
from kimi.application.ports import ChatModel
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import (
    APIStatusError,
    ConfigError,
    ModelNotSet,
    SessionBusy,
    StateError,
    UnknownSession,
    UsageError,
)
from kimi.domain.events.event import Event, HookResolved, Notification, StatusUpdate, ToolResult, TurnBegin, TurnEnd
from kimi.domain.events.request import ApprovalAnswer, ApprovalRequest, HookAnswer, QuestionRequest
from kimi.domain.history.history import find_unanswered_calls
from kimi.domain.hook import CommandHook
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.store.memory import MemoryStore
from kimi.infrastructure.workspace.local import LocalWorkspace
from kimi.interfaces.embed import (
    Agent,
    InvalidAnswer,
    NoAnswer,
    PythonHook,
    ResponseEnd,
    Settings,
    open_agent,
    scripted_model,
    tool_ok,
)
from tests.support.fakes import FakeModel, FakeTool, Script, forever
from tests.support.providers.scripted_calls import call

pytestmark = pytest.mark.anyio

Open = Callable[..., Agent]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens agents over one share directory and one work directory."""
    (tmp_path / "work").mkdir()

    def open_here(model: object, **options: Any) -> Agent:
        given: dict[str, Any] = {"share_dir": tmp_path / "share", **options}
        if "settings" in given:
            del given["share_dir"]
        return open_agent(tmp_path / "work", model, **given)  # pyright: ignore[reportArgumentType]

    return open_here


def texts(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextPart))


def results(events: list[Event]) -> dict[str, bool]:
    """Whether each call failed."""
    return {one.tool_call_id: one.return_value.is_error for one in events if isinstance(one, ToolResult)}


def write(call_id: str = "c1", path: str = "new.txt") -> str:
    """A script that writes a file, which wants approval."""
    return call(call_id, "WriteFile", path=path, content="written")


def said(agent: Agent, role: str) -> list[str]:
    return [repr(message.content) for message in agent.history if message.role == role]


# --- turns --------------------------------------------------------------------------------------------------------


async def test_events_of_a_turn_arrive_in_order_and_the_answer_is_the_last_step(opened: Open) -> None:
    async with opened(
        scripted_model("think: hm\ntext: looking\n" + call("c1", "Glob", pattern="*"), "text: done")
    ) as a:
        turn = a.prompt("look around")
        seen = [event async for event in turn]
        assert (type(seen[0]), type(seen[-1])) == (TurnBegin, TurnEnd)
        assert results(seen) == {"c1": False}
        assert (texts(seen), turn.text) == ("lookingdone", "done")
        assert turn.status is not None
        assert turn.status.status == "finished"


async def test_ask_returns_the_text_and_a_session_goes_on_later(opened: Open) -> None:
    async with opened(scripted_model("text: one", "text: two")) as agent:
        assert [await agent.ask("first"), await agent.ask("second")] == ["one", "two"]
        session = agent.session_id
    async with opened(scripted_model("text: three"), session=session, must_exist=True) as again:
        assert await again.ask("third") == "three"
        assert len(said(again, "user")) == 3
    async with opened(scripted_model(), continue_last=True) as last:
        assert last.session_id == session


async def read(agent: Agent, seen: list[Event]) -> None:
    async for event in agent.prompt("go"):
        seen.append(event)


async def test_error_of_the_model_is_raised_where_events_are_read(opened: Open) -> None:
    model = FakeModel([[TextPart("so far"), APIStatusError(400, "refused")], [TextPart("again")]])
    async with opened(model) as agent:
        seen: list[Event] = []
        with pytest.raises(APIStatusError, match="refused"):
            await read(agent, seen)
        assert isinstance(seen[-1], TurnEnd)
        assert await agent.ask("and now?") == "again"


async def test_program_without_a_model_is_told_what_to_do(opened: Open) -> None:
    async with opened(None) as agent:
        with pytest.raises(ModelNotSet, match="run 'kimi setup', or give open_agent a `model`"):
            await agent.ask("go")


async def test_second_prompt_is_refused_while_a_turn_runs(opened: Open) -> None:
    async with opened(FakeModel([[TextPart("a"), forever]])) as agent:
        running = agent.prompt("one")
        assert isinstance(await running.next_event(), TurnBegin)
        with pytest.raises(StateError, match="already in progress"):
            await agent.ask("two")
        agent.cancel()
        with pytest.raises(NoAnswer, match="cancelled"):
            await running.answer()
        assert not agent.cancel()


async def test_messages_are_added_to_a_running_turn(opened: Open) -> None:
    steered = anyio.Event()

    async def wait(arguments: Any, context: Any) -> Any:
        await steered.wait()
        return tool_ok("ok")

    scripts: list[Script] = [[ToolCall("c1", Function("Wait", "{}"))], [TextPart("both")]]
    async with opened(FakeModel(scripts), tools=[FakeTool("Wait", wait)]) as agent:
        with pytest.raises(StateError):
            agent.steer("too early")
        async for event in agent.prompt("go"):
            if isinstance(event, ToolCall):
                agent.steer("and this")
                steered.set()
        assert "and this" in said(agent, "user")[-1]


async def test_turn_that_takes_too_many_steps_has_no_answer(opened: Open) -> None:
    scripts = [call(f"c{number}", "Glob", pattern="*") for number in range(3)]
    async with opened(scripted_model(*scripts), max_steps=2) as agent:
        with pytest.raises(NoAnswer, match="as many steps as it may: 2") as caught:
            await agent.ask("go")
        assert caught.value.status.status == "max_steps_reached"


# --- the end of turns ---------------------------------------------------------------------------------------------


async def hanging_call(arguments: Any, context: Any) -> Any:
    await anyio.sleep_forever()


HANGING: Script = [TextPart("begins"), ToolCall("c1", Function("Hang", "{}")), ResponseEnd()]


@pytest.mark.spec("R-421")
@pytest.mark.parametrize("how", ["break", "error", "task", "close", "cancel"])
async def test_leaving_a_turn_early_cancels_it_and_the_next_one_begins(opened: Open, how: str) -> None:
    async def leave(agent: Agent, reading: anyio.Event) -> None:
        turn = agent.prompt("go")
        async for event in turn:
            if isinstance(event, ToolCall):
                reading.set()
                if how == "break":
                    break
                if how == "error":
                    raise ArithmeticError
                if how == "close":
                    return await turn.close()
                if how == "cancel":
                    agent.cancel()
        return None

    model = FakeModel([HANGING, [TextPart("again")]])
    async with opened(model, tools=[FakeTool("Hang", hanging_call)]) as agent:
        reading = anyio.Event()
        task = asyncio.create_task(leave(agent, reading))
        await reading.wait()
        await asyncio.sleep(0.01)
        if how == "task":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await agent.ask("and now?") == "again"
        assert len(said(agent, "tool")) == 1, "the call that was cut off is answered"
        recorded = b"".join(agent.conversation.files.events())
        assert recorded.count(encode_event(TurnEnd())) == 2


async def test_scope_of_anyio_around_a_turn_cancels_it(opened: Open) -> None:
    model = FakeModel([HANGING, [TextPart("again")]])
    async with opened(model, tools=[FakeTool("Hang", hanging_call)]) as agent:
        with anyio.CancelScope() as scope:
            async for event in agent.prompt("go"):
                if isinstance(event, ToolCall):
                    scope.cancel()
        assert scope.cancelled_caught
        assert await agent.ask("and now?") == "again"


@pytest.mark.spec("R-421")
@pytest.mark.parametrize("how", ["break", "cancel"])
async def test_turn_that_is_left_at_any_event_leaves_no_call_open(opened: Open, how: str) -> None:
    scripts = ("text: a\n" + call("c1", "Glob", pattern="*"), write("c2"), "think: b\ntext: done")
    store = MemoryStore("/w")
    for at in range(1, 40):
        async with opened(scripted_model(*scripts, *scripts), store=store, approve=lambda request: True) as agent:  # pyright: ignore
            seen = 0
            async for _ in agent.prompt("go"):
                seen += 1
                if seen == at:
                    if how == "break":
                        break
                    agent.cancel()
            agent.use_model(scripted_model("text: next", "text: next"))  # the first may go to the turn that ends
            assert await agent.ask("and now?") == "next"
            assert not find_unanswered_calls(agent.history)
        if seen < at:
            return
    raise AssertionError("the turn has more events than that")


@pytest.mark.spec("R-421")
async def test_closing_ends_the_turn_and_may_be_repeated(opened: Open, tmp_path: Path) -> None:
    agent = opened(FakeModel([HANGING]), tools=[FakeTool("Hang", hanging_call)])
    await agent.close()
    agent = opened(FakeModel([HANGING]), tools=[FakeTool("Hang", hanging_call)])
    assert agent.is_closed
    await agent.open()
    running = agent.prompt("go")
    while not isinstance(await running.next_event(), ToolCall):
        pass
    await agent.close()
    await agent.close()
    assert agent.is_closed
    assert await running.next_event() is None
    for late in (lambda: agent.prompt("late").answer(), agent.open):
        with pytest.raises(StateError):
            await late()
    async with opened(scripted_model(), session=agent.session_id) as again:
        assert len(said(again, "tool")) == 1


@pytest.mark.spec("R-421")
@pytest.mark.parametrize("where", ["tool", "approve", "loop"])
async def test_agent_that_is_closed_from_within_ends_and_nothing_hangs(opened: Open, where: str) -> None:
    async def stop() -> str:
        """Stop the agent."""
        await agent.close()
        return "stopped"

    async def approve(request: ApprovalRequest) -> bool:
        await agent.close()
        return True

    script = call("c1", "stop") if where == "tool" else write()
    options: dict[str, Any] = {"approve": approve} if where == "approve" else {"approve": "events", "tools": [stop]}
    with anyio.fail_after(20):
        async with opened(scripted_model(script, "text: on"), **options) as agent:
            async for event in agent.prompt("go"):
                if where == "loop" and isinstance(event, ApprovalRequest):
                    await agent.close()
        assert agent.is_closed
    async with opened(scripted_model(), session=agent.session_id) as again:
        assert not find_unanswered_calls(again.history)


async def test_agent_inside_of_a_tool_of_another_may_close_both(opened: Open) -> None:
    async def stop() -> str:
        """Stop the outer agent."""
        await outer.close()
        return "stopped"

    async def delegate() -> str:
        """Let another agent stop this one."""
        async with opened(scripted_model(call("d1", "stop"), "text: inner"), tools=[stop]) as inner:
            return await inner.ask("go")

    with anyio.fail_after(20):
        async with opened(scripted_model(call("c1", "delegate"), "text: on"), tools=[delegate]) as outer:
            async for _ in outer.prompt("go"):
                pass
        assert outer.is_closed


async def test_error_of_the_body_is_raised_as_it_is(opened: Open) -> None:
    async def fail() -> None:
        async with opened(scripted_model("text: a")) as agent:
            await agent.ask("go")
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await fail()


async def test_cancelled_body_leaves_a_session_that_can_be_opened(opened: Open) -> None:
    with anyio.CancelScope() as scope:
        async with opened(FakeModel([[TextPart("a"), forever]]), session="s") as agent:
            async for event in agent.prompt("go"):
                if isinstance(event, TextPart):
                    scope.cancel()
    async with opened(scripted_model("text: b"), session="s") as again:
        assert await again.ask("more") == "b"


async def test_turn_nobody_reads_any_more_is_cancelled_with_its_reader(opened: Open) -> None:
    async with opened(FakeModel([[TextPart("a"), forever], [TextPart("b")]])) as agent:
        reader = agent.prompt("go").__aiter__()
        while not isinstance(await anext(reader), TextPart):
            pass
        del reader
        gc.collect()
        assert await agent.ask("more") == "b"


async def test_prompt_that_was_never_read_costs_nothing(opened: Open) -> None:
    model = FakeModel([[TextPart("a")]])
    async with opened(model) as agent:
        unread = agent.prompt("never")
        await unread.close()
        assert await unread.next_event() is None
        assert await agent.ask("go") == "a"
        assert len(model.asked) == 1


# --- approvals ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-422")
async def test_nobody_who_approves_means_a_rejection_with_a_reason(opened: Open, tmp_path: Path) -> None:
    async with opened(scripted_model(write(), "text: I cannot.")) as agent:
        with anyio.fail_after(20):
            assert await agent.ask("write") == "I cannot."
        assert "Nobody can approve this here" in said(agent, "tool")[0]
    assert not (tmp_path / "work" / "new.txt").exists()


@pytest.mark.parametrize(
    ("verdict", "is_written"),
    [
        (True, True),
        ("approve", True),
        ("approve_for_session", True),
        (ApprovalAnswer("approve"), True),
        (False, False),
        ("reject", False),
        (ApprovalAnswer("reject", "not here"), False),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "async", "partial"])
async def test_function_approves(opened: Open, tmp_path: Path, kind: str, verdict: Any, is_written: bool) -> None:
    asked: list[ApprovalRequest] = []

    def plain(request: ApprovalRequest) -> Any:
        asked.append(request)
        return verdict

    async def later(request: ApprovalRequest) -> Any:
        return plain(request)

    approve = {"plain": plain, "async": later, "partial": partial(later)}[kind]
    async with opened(scripted_model(write(), "text: ok"), approve=approve) as agent:
        async for _ in agent.prompt("write"):
            pass
    assert [request.sender for request in asked] == ["WriteFile"]
    assert (tmp_path / "work" / "new.txt").exists() == is_written


async def test_yes_to_all_asks_nobody_but_deny_rules_hold(opened: Open, tmp_path: Path) -> None:
    config = '[[approval.rules]]\ndecision = "deny"\ntool = "Shell"\n'
    scripts = (write(), call("c2", "Shell", command="touch other.txt"), "text: done")
    async with opened(scripted_model(*scripts), approve="all", config=config) as agent:
        seen = [event async for event in agent.prompt("go")]
    assert results(seen) == {"c1": False, "c2": True}
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["new.txt"]


@pytest.mark.spec("R-422")
@pytest.mark.parametrize("answer", [True, False])
async def test_approvals_as_events_are_answered_by_the_reader(opened: Open, tmp_path: Path, answer: bool) -> None:
    async with opened(scripted_model(write(), "text: ok"), approve="events") as agent:
        async for event in agent.prompt("write"):
            if isinstance(event, ApprovalRequest):
                assert agent.resolve(event, answer)
                assert not agent.resolve(event, answer)
    assert (tmp_path / "work" / "new.txt").exists() == answer


async def test_approval_given_for_the_session_is_not_asked_again(opened: Open) -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> str:
        asked.append(request)
        return "approve_for_session"

    async with opened(scripted_model(write("c1", "a"), write("c2", "b"), "text: ok"), approve=approve) as agent:
        await agent.ask("write twice")
    assert len(asked) == 1


@pytest.mark.spec("R-422")
@pytest.mark.parametrize("fault", ["raises", "nonsense"])
async def test_error_of_the_function_that_approves_reaches_the_reader(opened: Open, fault: str, tmp_path: Path) -> None:
    def approve(request: ApprovalRequest) -> Any:
        if fault == "raises":
            raise ArithmeticError("a bug")
        return "maybe"

    async with opened(scripted_model(write(), "text: next"), approve=approve) as agent:
        with pytest.raises(ArithmeticError if fault == "raises" else ValueError):
            await agent.ask("write")
        assert await agent.ask("go on") == "next"
    assert not (tmp_path / "work" / "new.txt").exists()


async def test_function_that_is_still_asking_is_cancelled_with_the_turn(opened: Open) -> None:
    ends: list[str] = []

    async def approve(request: ApprovalRequest) -> bool:
        asking.set()
        try:
            await anyio.sleep_forever()
        finally:
            ends.append(request.sender)
        return True

    async def cancel_when_asked() -> None:
        await asking.wait()
        agent.cancel()

    asking = anyio.Event()
    async with opened(scripted_model(write(), "text: next"), approve=approve) as agent:
        turn = agent.prompt("write")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_asked)
            async for _ in turn:
                pass
        assert turn.status is not None
        assert turn.status.status == "cancelled"
        assert await agent.ask("go on") == "next"
        assert ends == ["WriteFile"]


QUESTION = call(
    "q1", "AskUserQuestion", questions=[{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]
)


@pytest.mark.parametrize("kind", ["function", "events"])
async def test_questions_of_the_model_are_answered(opened: Open, kind: str) -> None:
    def answer(request: QuestionRequest) -> dict[str, str]:
        return {one.question: one.options[1].label for one in request.questions}

    who = answer if kind == "function" else "events"
    async with opened(scripted_model(QUESTION, "text: b then"), answer_questions=who) as agent:
        async for event in agent.prompt("go"):
            if isinstance(event, QuestionRequest) and kind == "events":
                with pytest.raises(ValueError, match="mapping"):
                    agent.resolve(event, True)
                assert agent.resolve(event, answer(event))
        assert "b" in said(agent, "tool")[0]


async def test_model_is_offered_no_questions_where_nobody_answers_them(opened: Open) -> None:
    model = FakeModel([[TextPart("a")], [TextPart("b")]])
    for options in ({}, {"answer_questions": lambda request: {}}):  # pyright: ignore
        async with opened(model, **options) as agent:
            await agent.ask("go")
    offered = [{"AskUserQuestion", "ExitPlanMode"} & {spec.name for spec in asked.tools} for asked in model.asked]
    assert offered == [set(), {"AskUserQuestion", "ExitPlanMode"}]


# --- answers with a type ------------------------------------------------------------------------------------------


class City(BaseModel):
    """A place."""

    name: str
    people: int


BERN = '{"name": "Bern", "people": 1}'


@pytest.mark.spec("R-424")
@pytest.mark.parametrize("text", [BERN, f"```json\n{BERN}\n```", f"Here:\n```\n{BERN}\n```\nThat is it."])
async def test_answer_is_an_object_of_the_type(opened: Open, text: str) -> None:
    model = FakeModel([[TextPart(text)]])
    async with opened(model) as agent:
        city = await agent.ask("Which city?", City)
    assert city == City(name="Bern", people=1)
    sent = repr(model.asked[0].history[-1])
    assert "Which city?" in sent
    assert "people" in sent


@pytest.mark.spec("R-424")
async def test_answer_that_does_not_fit_is_corrected_once(opened: Open) -> None:
    model = FakeModel([[TextPart('{"name": "Bern"}')], [TextPart("[1, 2]")], [TextPart("x")], [TextPart("y")]])
    async with opened(model) as agent:
        with pytest.raises(InvalidAnswer, match="no City") as caught:
            await agent.ask("Which city?", City)
        assert caught.value.text == "[1, 2]"
        assert "people: Field required" in repr(model.asked[1].history[-1])
        with pytest.raises(InvalidAnswer):
            await agent.ask("How many?", list[int])
    assert len(model.asked) == 4


async def test_type_without_a_schema_is_refused_before_the_model_is_asked(opened: Open) -> None:
    model = FakeModel([])
    async with opened(model) as agent:
        with pytest.raises(UsageError, match="no JSON Schema"):
            await agent.ask("go", asyncio.Event)
    assert model.asked == []


# --- replaced parts -----------------------------------------------------------------------------------------------


@pytest.mark.spec("R-425")
async def test_model_store_workspace_and_hooks_are_replaced_by_one_argument_each(opened: Open, tmp_path: Path) -> None:
    class Recording(LocalWorkspace):
        """Notes what is written."""

        async def write(self, path: str, content: bytes, expected: Any) -> Any:
            written.append(content)
            return await super().write(path, content, expected)

    written: list[bytes] = []
    told: list[str] = []

    def hear(payload: Any) -> None:
        told.append(payload["tool_name"])

    store = MemoryStore(str(tmp_path / "work"))
    work = str(tmp_path / "work")
    settings = Settings(share_dir=str(tmp_path / "none"), work_dir=work)
    workspace = Recording(work, settings.shell, frozenset(), {})
    agent = opened(
        scripted_model(write(), "text: ok"),
        store=store,
        workspace=workspace,
        hooks=[PythonHook("PreToolUse", hear, matcher="Write")],
        approve="all",
        settings=settings.model_copy(update={"yolo": True}),
    )
    async with agent:
        assert await agent.ask("write") == "ok"
    assert (written, told) == ([b"written"], ["WriteFile"])
    assert [one.id for one in store.list_sessions()] == [agent.session_id]
    assert not (tmp_path / "none" / "sessions").exists()


@pytest.mark.parametrize(
    ("verdict", "is_written"), [(False, False), ("no", False), (HookAnswer("block"), False), (None, True), (True, True)]
)
async def test_hook_function_blocks_a_call(opened: Open, tmp_path: Path, verdict: Any, is_written: bool) -> None:
    hooks = [PythonHook("PreToolUse", lambda payload: verdict)]
    async with opened(scripted_model(write(), "text: ok"), approve="all", hooks=hooks) as agent:
        await agent.ask("write")
    assert (tmp_path / "work" / "new.txt").exists() == is_written


@pytest.mark.parametrize(("on_failure", "is_written"), [("allow", True), ("block", False)])
async def test_hook_function_that_raises_means_what_was_said(
    opened: Open, tmp_path: Path, on_failure: Any, is_written: bool
) -> None:
    def fail(payload: Any) -> None:
        raise ArithmeticError

    hooks = [PythonHook("PreToolUse", fail, on_failure=on_failure)]
    async with opened(scripted_model(write(), "text: ok"), approve="all", hooks=hooks) as agent:
        seen = [event async for event in agent.prompt("write")]
    assert any(isinstance(event, HookResolved) for event in seen)
    assert (tmp_path / "work" / "new.txt").exists() == is_written


async def test_command_hooks_run_beside_the_configured_ones(opened: Open, tmp_path: Path) -> None:
    hooks = [CommandHook("PreToolUse", "touch own")]
    config = '[[hooks]]\nevent = "PreToolUse"\ncommand = "touch configured"\n'
    async with opened(scripted_model(write(), "text: ok"), approve="all", hooks=hooks, config=config) as agent:
        await agent.ask("write")
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"own", "configured", "new.txt"}


CONFIG = """
default_model = "main"
[providers.echo]
type = "_echo"
base_url = ""
api_key = ""
[models.main]
provider = "echo"
model = "echo"
max_context_size = 100000
[models.other]
provider = "echo"
model = "other"
max_context_size = 50000
"""


async def test_model_is_named_or_switched_by_its_alias_or_given_as_an_object(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    def model(agent: Agent) -> ChatModel:
        assert agent.conversation.model is not None
        return agent.conversation.model

    async with opened("other", config=tmp_path / "config.toml") as agent:
        assert model(agent).context_size == 50_000
        agent.use_model("main")
        assert await agent.ask("text: from the configuration") == "from the configuration"
        assert model(agent).context_size == 100_000
        agent.use_model(scripted_model("text: mine"))
        assert await agent.ask("go") == "mine"
        with pytest.raises(StateError, match="choose one of: main, other"):
            agent.use_model("nobody")


async def test_usage_of_a_turn_and_of_the_session_is_counted(opened: Open) -> None:
    end = ResponseEnd(usage=TokenUsage(input_other=5, output=2))
    async with opened(FakeModel([[TextPart("a"), end], [TextPart("b"), end]])) as agent:
        updates = [event async for event in agent.prompt("one") if isinstance(event, StatusUpdate) and event.usage]
        await agent.ask("two")
        assert (agent.usage.turn.tokens.total, agent.usage.session.tokens.total) == (7, 14)
    assert updates


# --- opening ------------------------------------------------------------------------------------------------------


async def test_wrong_options_are_refused_with_what_to_do(opened: Open, tmp_path: Path) -> None:
    settings = Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path / "work"))
    cases: list[tuple[type[Exception], str, object, dict[str, Any]]] = [
        (UsageError, "thinking in `settings`", None, {"settings": settings, "thinking": True}),
        (ConfigError, "no model 'x'", "x", {"settings": settings}),
        (UsageError, "is no file", None, {"agent_file": tmp_path / "none.yaml"}),
        (UnknownSession, "no session 'none'", scripted_model(), {"session": "none", "must_exist": True}),
        (ConfigError, "'ReadFile' cannot be added", scripted_model(), {"tools": [FakeTool("ReadFile")]}),
        (ConfigError, "x", "x", {}),
    ]
    for error, text, model, options in cases:
        agent = opened(model, **options)
        with pytest.raises(error, match=text):
            await agent.open()
        await agent.close()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"tool": []}, TypeError, "'tool'; did you mean 'tools'?"),
        ({"zzz": 1}, TypeError, "unexpected keyword argument 'zzz'$"),
        ({"approve": "yes"}, UsageError, "`approve` is 'yes'"),
        ({"answer_questions": "yes"}, UsageError, "`answer_questions` is 'yes'"),
        ({"settings": Settings(share_dir="/s", work_dir="/elsewhere")}, UsageError, "say it once"),
    ],
)
def test_misspelled_options_are_refused_at_once(opened: Open, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text.rstrip("$"))):
        opened(None, **options)


async def test_every_option_of_a_start_reaches_the_settings(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("version: 1\nagent: {extend: default, name: mine}\n")
    agent = opened(
        None,
        agent_file=tmp_path / "agent.yaml",
        thinking=True,
        mcp_configs=['{"mcpServers": {}}', {"mcpServers": {}}],
        skills_dirs=[tmp_path],
        additional_dirs=[tmp_path / "more"],
        plan=True,
        sandbox="off",
        slash_commands=False,
        max_steps=7,
        max_attempts=2,
        ralph_iterations=1,
    )
    async with agent:
        limits, policy = agent.conversation.turns.limits, agent.conversation.policy
        assert (limits.max_steps, limits.max_attempts, limits.ralph_iterations) == (7, 2, 1)
        assert policy.plan
        assert not agent.conversation.resources.takes_commands
        assert agent.conversation.files.state.additional_dirs == (str(tmp_path / "more"),)


async def test_work_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        await open_agent(tmp_path / "none", scripted_model(), share_dir=tmp_path).open()


async def test_prompt_that_nobody_reads_is_warned_about(opened: Open) -> None:
    async with opened(scripted_model()) as agent:
        with pytest.warns(RuntimeWarning, match="never read"):
            agent.prompt("go")


async def test_session_that_is_open_elsewhere_is_busy(opened: Open, tmp_path: Path) -> None:
    store = MemoryStore(str(tmp_path / "work"), lock_wait_s=0.05)
    async with opened(scripted_model("text: a"), store=store, session="s") as agent:
        await agent.ask("go")
        with pytest.raises(SessionBusy):
            await opened(scripted_model(), store=store, session="s").open()


async def test_opening_that_is_cancelled_leaves_nothing_open(opened: Open, tmp_path: Path) -> None:
    store = MemoryStore(str(tmp_path / "work"), lock_wait_s=60)
    async with opened(scripted_model("text: a"), store=store, session="s") as agent:
        await agent.ask("go")
        with anyio.move_on_after(0.05) as scope:
            await opened(scripted_model(), store=store, session="s").open()
        assert scope.cancelled_caught
    async with opened(scripted_model(), store=store, session="s"):
        pass


@pytest.mark.spec("R-426")
async def test_many_sessions_of_one_process_do_not_mix(opened: Open, tmp_path: Path) -> None:
    async def talk(agent: Agent, name: str) -> None:
        async with agent:
            seen = [texts([event]) async for event in agent.prompt(f"text: I am {name}")]
            assert "".join(seen) == f"I am {name}"
            assert await agent.ask(f"text: still {name}") == f"still {name}"
            answers[agent.session_id] = said(agent, "user")

    (tmp_path / "config.toml").write_text(CONFIG)
    answers: dict[str, list[str]] = {}
    async with opened(None, config=tmp_path / "config.toml") as first:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(talk, first.open_session(), f"number {number}")
            tasks.start_soon(talk, opened(None, config=tmp_path / "config.toml"), "apart")
        assert await first.ask("text: first") == "first"
    assert len(answers) == 21
    assert all(len(found) == 2 for found in answers.values())


async def test_events_between_two_turns_come_with_the_next_one(opened: Open) -> None:
    async with opened(scripted_model("text: a", "text: b")) as agent:
        await agent.ask("one")
        note = Notification("n", "system", "t", "k", "s", "Title", "Body", "info", 1.0, {})
        await agent.conversation.events.emit(note)
        seen = [event async for event in agent.prompt("two")]
        assert seen[0] == note
        assert texts(seen) == "b"


def test_other_event_loops_are_refused_with_what_to_do(opened: Open) -> None:
    with pytest.raises(UsageError, match="needs asyncio"):  # no loop of asyncio runs, as when trio does
        opened(scripted_model()).open().send(None)
