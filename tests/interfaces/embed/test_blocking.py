"""The synchronous face: the same agent from plain threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError, StateError, UnknownSession
from kimi.domain.events.event import ToolResult, TurnBegin, TurnEnd
from kimi.domain.events.request import ApprovalRequest
from kimi.interfaces.embed import NoAnswer, SyncAgent, open_agent_sync, scripted_model
from tests.support.fakes import FakeModel, forever
from tests.support.providers.scripted_calls import call

Open = Callable[..., SyncAgent]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    (tmp_path / "work").mkdir()

    def open_here(model: Any, **options: Any) -> SyncAgent:
        return open_agent_sync(tmp_path / "work", model, share_dir=tmp_path / "share", **options)

    return open_here


def agent_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kimi agent")]


class Number(BaseModel):
    """A number."""

    value: int


@pytest.mark.spec("R-427")
def test_plain_code_prompts_and_asks_and_the_thread_ends_with_the_agent(opened: Open) -> None:
    with opened(scripted_model("text: one", "text: two")) as agent:
        turn = agent.prompt("go")
        seen = list(turn)
        assert (type(seen[0]), type(seen[-1]), turn.text) == (TurnBegin, TurnEnd, "one")
        assert turn.status is not None
        assert agent.ask("again") == "two"
        assert agent_threads()
    assert not agent_threads()
    agent.close()
    with pytest.raises(StateError):
        agent.ask("late")
    with opened(scripted_model('text: {"value": 3}'), session=agent.session_id) as again:
        assert again.ask("number", Number) == Number(value=3)


def test_shell_commands_run_from_a_thread_and_approval_may_block(opened: Open, tmp_path: Path) -> None:
    waiting = threading.Event()

    def approve(request: ApprovalRequest) -> bool:
        waiting.set()
        return True

    with opened(scripted_model(call("c1", "Shell", command="echo hi > out.txt"), "text: ok"), approve=approve) as agent:
        results = [event for event in agent.prompt("go") if isinstance(event, ToolResult)]
    assert waiting.is_set()
    assert [one.return_value.is_error for one in results] == [False]
    assert (tmp_path / "work" / "out.txt").read_text() == "hi\n"


def test_approvals_as_events_are_answered_between_two_of_them(opened: Open, tmp_path: Path) -> None:
    model = scripted_model(call("c1", "WriteFile", path="new.txt", content="x"), "text: ok")
    with opened(model, approve="events") as agent:
        for event in agent.prompt("go"):
            if isinstance(event, ApprovalRequest):
                assert agent.resolve(event, "approve")
    assert (tmp_path / "work" / "new.txt").exists()


@pytest.mark.spec("R-427")
def test_leaving_the_loop_early_cancels_the_turn(opened: Open) -> None:
    with opened(FakeModel([[TextPart("a"), forever], [TextPart("b")]])) as agent:
        for event in agent.prompt("go"):
            if isinstance(event, TextPart):
                break
        assert agent.ask("and now?") == "b"


def test_turn_is_cancelled_and_steered_from_another_thread(opened: Open) -> None:
    with opened(FakeModel([[ToolCall("c1", Function("Glob", '{"pattern": "*"}'))], [TextPart("a"), forever]])) as agent:
        begun = threading.Event()
        with ThreadPoolExecutor() as pool:

            def read() -> str:
                turn = agent.prompt("go")
                for event in turn:
                    if isinstance(event, TextPart):
                        begun.set()
                assert turn.status is not None
                return turn.status.status

            reading = pool.submit(read)
            assert begun.wait(20)
            agent.steer("more")
            assert agent.cancel()
            assert reading.result(20) == "cancelled"
        assert not agent.cancel()


@pytest.mark.spec("R-427")
def test_agents_of_several_threads_do_not_wait_for_each_other(opened: Open) -> None:
    together = threading.Barrier(4, timeout=20)

    def meet() -> str:
        """Wait for the other agents."""
        together.wait()
        return "met"

    def talk(number: int) -> str:
        with opened(scripted_model(call("c1", "meet"), f"text: {number}"), tools=[meet]) as agent:
            return agent.ask("go")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(talk, range(4))) == ["0", "1", "2", "3"]


def test_errors_are_raised_in_the_calling_thread(opened: Open) -> None:
    with pytest.raises(UnknownSession):
        opened(scripted_model(), session="none", must_exist=True).open()
    assert not agent_threads()
    with opened(FakeModel([[APIStatusError(400, "refused")]])) as agent:
        with pytest.raises(APIStatusError, match="refused"):
            agent.ask("go")
        with pytest.raises(StateError, match="once"):
            agent.open()


def test_interrupted_answer_is_an_error(opened: Open) -> None:
    with opened(FakeModel([[TextPart("a"), forever]])) as agent:
        turn = agent.prompt("go")
        threading.Timer(0.1, turn.cancel).start()
        with pytest.raises(NoAnswer):
            turn.answer()


def test_loop_that_outlives_its_agent_ends_quietly(opened: Open) -> None:
    agent = opened(FakeModel([[TextPart("a"), forever]])).open()
    events = iter(agent.prompt("go"))
    assert isinstance(next(events), TurnBegin)
    agent.close()
    with pytest.raises(StateError, match="not open"):
        next(events)
    unread = opened(FakeModel([[TextPart("a"), forever]])).open()
    left = iter(unread.prompt("go"))
    next(left)
    unread.close()
    del left


@pytest.mark.spec("R-427")
def test_agent_that_another_thread_closes_ends_the_loop_that_reads(opened: Open) -> None:
    with opened(FakeModel([[TextPart("a"), forever]])) as agent:
        reading = threading.Event()

        def read() -> str:
            try:
                for event in agent.prompt("go"):
                    if isinstance(event, TextPart):
                        reading.set()
            except StateError as error:
                return str(error)
            return "ended"

        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(read)
            assert reading.wait(20)
            agent.close()
            assert waiting.result(20) in ("ended", "The agent is not open; use `with`.")
    assert not agent_threads()


def test_tool_that_closes_its_agent_ends_it(opened: Open) -> None:
    def stop() -> str:
        """Stop the agent."""
        agent.close()
        return "stopped"

    agent = opened(scripted_model(call("c1", "stop"), "text: on"), tools=[stop])
    with agent, suppress(StateError):
        for _ in agent.prompt("go"):
            pass
    assert not agent_threads()


PROGRAM = """
import os, signal, threading
from kimi.interfaces.embed import TextPart, open_agent_sync, scripted_model
from tests.support.fakes import FakeModel, forever

def interrupt():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

def open_agent(model, **options):
    return open_agent_sync(".", model, share_dir="share", **options)

"""
ASK_AFTER_AN_INTERRUPT = """
with open_agent(FakeModel([[TextPart("a"), forever], [TextPart("b")]])) as agent:
    interrupt()
    try:
        agent.ask("go")
    except KeyboardInterrupt:
        print("interrupted")
    print(agent.ask("and now?"))
"""
OPEN_UNTIL_AN_INTERRUPT = """
with open_agent(scripted_model("text: a"), session="s") as agent:
    agent.ask("go")
    interrupt()
    try:
        open_agent(scripted_model(), session="s").open()  # waits for the other one to go
    except KeyboardInterrupt:
        print("interrupted")
"""
FORGET_TO_CLOSE = """
agent = open_agent(FakeModel([[TextPart("a"), forever]]), session="s").open()
for event in agent.prompt("go"):
    if isinstance(event, TextPart):
        print(event.text)
        break
"""


@pytest.mark.spec("R-427")
@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot interrupt itself there")
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (ASK_AFTER_AN_INTERRUPT, "interrupted\nb\n"),
        (OPEN_UNTIL_AN_INTERRUPT, "interrupted\n"),
        (FORGET_TO_CLOSE, "a\n"),
    ],
    ids=["ask", "open", "forgotten"],
)
def test_interrupts_end_what_they_interrupt_and_programs_end_their_agents(
    tmp_path: Path, program: str, said: str
) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", PROGRAM + program]
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == (said, "", 0)
    with open_agent_sync(tmp_path, scripted_model(), share_dir=tmp_path / "share", continue_last=True) as again:
        assert again.session_id


def test_async_function_that_waits_for_its_own_agent_is_told_why_not(opened: Open) -> None:
    async def wait(how: str) -> str:
        """Wait for the agent."""
        return agent.ask("go") if how == "ask" else str(agent.close())

    script = "\n".join((call("c1", "wait", how="ask"), call("c2", "wait", how="close")))
    with opened(scripted_model(script, "text: on"), tools=[wait]) as agent:
        results = [event.return_value for event in agent.prompt("go") if isinstance(event, ToolResult)]
        assert ["cannot wait for it" in one.message for one in results] == [True, True]


def test_tool_that_calls_sys_exit_does_not_end_the_thread(opened: Open) -> None:
    async def leave() -> None:
        """Leave the program."""
        sys.exit(3)

    with opened(scripted_model(call("c1", "leave"), "text: on"), tools=[leave]) as agent:
        assert agent.ask("go") == "on"
