"""Embedded agents among programs that cancel, fail and forget: every turn ends, and nothing is left running."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio.lowlevel
import pytest
from pydantic import BaseModel

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ConfigError, StateError, UsageError
from kimi.domain.events.event import ToolResult
from kimi.interfaces.embed import Agent, PythonHook, open_agent, scripted_model, tool
from tests.support.fakes import FakeModel, FakeTool
from tests.support.providers.scripted_calls import call

pytestmark = pytest.mark.anyio

Open = Callable[..., Agent]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    (tmp_path / "work").mkdir()

    def open_here(model: Any, **options: Any) -> Agent:
        return open_agent(tmp_path / "work", model, share_dir=tmp_path / "share", **options)

    return open_here


def write(call_id: str = "c1") -> str:
    return call(call_id, "WriteFile", path="new.txt", content="written")


async def cancelled_elsewhere() -> Any:
    """Wait for something that another part of the program cancels."""
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


async def answer(request: object) -> Any:
    return await cancelled_elsewhere()


QUESTION = call(
    "c1", "AskUserQuestion", questions=[{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]
)


async def read_to_the_end(agent: Agent) -> list[ToolResult]:
    with anyio.fail_after(20):
        return [event async for event in agent.prompt("go") if isinstance(event, ToolResult)]


@pytest.mark.spec("R-423")
async def test_tool_whose_wait_was_cancelled_by_others_is_an_error_of_the_tool(opened: Open) -> None:
    model = scripted_model(call("c1", "cancelled_elsewhere"), "text: on")
    async with opened(model, tools=[cancelled_elsewhere]) as agent:
        [result] = await read_to_the_end(agent)
        assert "was cancelled" in result.return_value.message


@pytest.mark.spec("R-422")
@pytest.mark.parametrize("where", ["approve", "question"])
async def test_answer_whose_wait_was_cancelled_by_others_ends_the_turn(opened: Open, where: str) -> None:
    options: dict[str, Any] = {"approve": answer} if where == "approve" else {"answer_questions": answer}
    script = write() if where == "approve" else QUESTION
    async with opened(scripted_model(script, "text: next"), **options) as agent:
        with pytest.raises(RuntimeError, match="was cancelled"):
            await read_to_the_end(agent)
        assert await agent.ask("go on") == "next"


@pytest.mark.parametrize("on_failure", ["allow", "block"])
async def test_hook_whose_wait_was_cancelled_by_others_has_failed(opened: Open, on_failure: Any) -> None:
    hooks = [PythonHook("PreToolUse", answer, on_failure=on_failure)]
    async with opened(scripted_model(write(), "text: on"), approve="all", hooks=hooks) as agent:
        [result] = await read_to_the_end(agent)
        assert result.return_value.is_error == (on_failure == "block")


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_tool_that_calls_sys_exit_ends_its_call_only(opened: Open, kind: str) -> None:
    def leave() -> None:
        """Leave the program."""
        sys.exit(3)

    async def leave_later() -> None:
        """Leave the program."""
        sys.exit(3)

    leaving = tool(name="leave")(leave if kind == "plain" else leave_later)
    async with opened(scripted_model(call("c1", "leave"), "text: on"), tools=[leaving]) as agent:
        [result] = await read_to_the_end(agent)
    assert "sys.exit(3)" in result.return_value.message


@pytest.mark.spec("R-421")
@pytest.mark.parametrize("how", ["close", "turn"])
async def test_end_is_not_broken_off_by_cancelling_the_task_that_waits(opened: Open, how: str) -> None:
    ends: list[str] = []

    async def settle(arguments: Any, context: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
            ends.append("settled")

    model = FakeModel([[ToolCall("c1", Function("Settle", "{}"))]])
    async with opened(model, tools=[FakeTool("Settle", settle)]) as agent:
        turn = agent.prompt("go")
        while not isinstance(await turn.next_event(), ToolCall):
            pass
        await anyio.sleep(0.01)
        ending = asyncio.create_task(agent.close() if how == "close" else turn.close())
        for _ in range(3):
            await anyio.sleep(0.01)
            ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert ends == ["settled"]


@pytest.mark.spec("R-426")
async def test_functions_that_block_stop_no_other_agent(opened: Open) -> None:
    """More of them than there are threads for files."""
    together = threading.Barrier(45, timeout=20)

    def meet() -> str:
        """Wait for the others."""
        together.wait()
        return "met"

    async def talk() -> None:
        async with opened(scripted_model(call("c1", "meet"), "text: ok"), tools=[meet]) as agent:
            [result] = await read_to_the_end(agent)
            assert result.return_value.output == "met"

    async with anyio.create_task_group() as tasks:
        for _ in range(45):
            tasks.start_soon(talk)


def test_agent_of_another_event_loop_is_refused(opened: Open) -> None:
    with asyncio.Runner() as own:
        agent = own.run(opened(scripted_model("text: a")).open())
        for use in (agent.ask("go"), agent.close()):
            with pytest.raises(StateError, match="the event loop that opened it"):
                asyncio.run(use)
        assert own.run(agent.ask("go")) == "a"
        own.run(agent.close())
    asyncio.run(agent.close())


async def test_session_of_an_agent_that_is_closed_meanwhile_opens_later(opened: Open) -> None:
    async with opened(scripted_model("text: a")) as agent:
        later = agent.open_session()
    async with later:
        assert await later.ask("go") == "a"


class Incomplete(BaseModel):
    """Names a type that nobody defines."""

    value: "Nowhere"  # noqa: F821, UP037  # pyright: ignore


@pytest.mark.spec("R-424")
async def test_type_that_is_not_complete_is_refused_before_the_model_is_asked(opened: Open) -> None:
    async with opened(scripted_model()) as agent:
        with pytest.raises(UsageError, match="no JSON Schema"):
            await agent.ask("go", Incomplete)


@pytest.mark.parametrize(
    ("answer_type", "text", "answer"),
    [(int | None, "null", None), (dict[str, list[int]], '{"a": [1]}', {"a": [1]}), (Literal["a", "b"], '"b"', "b")],
)
async def test_answers_may_be_unions_literals_and_mappings(
    opened: Open, answer_type: Any, text: str, answer: object
) -> None:
    async with opened(FakeModel([[TextPart(text)]])) as agent:
        assert await agent.ask("go", answer_type) == answer


async def test_two_tools_of_one_name_are_refused(opened: Open) -> None:
    with pytest.raises(ConfigError, match="Two tools are called 'cancelled_elsewhere'"):
        await opened(scripted_model(), tools=[cancelled_elsewhere, cancelled_elsewhere]).open()


async def test_function_that_closes_its_agent_is_no_failure_of_the_agent(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def approve(request: object) -> bool:
        await agent.close()
        return True

    async with opened(scripted_model(write(), "text: on"), approve=approve) as agent:
        with anyio.fail_after(20):
            async for _ in agent.prompt("go"):
                pass
    assert not caplog.records


async def test_agent_that_is_closed_while_it_opens_is_no_failure(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    agent = opened(scripted_model())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.open)
        await anyio.lowlevel.checkpoint()
        await agent.close()
    with pytest.raises(StateError, match="is closed"):
        await agent.ask("go")
    assert not caplog.records
