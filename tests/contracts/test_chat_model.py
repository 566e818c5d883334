"""The contract of `ChatModel`, for every adapter: scripted, `openai_legacy`, `kimi`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings import ModelSettings
from kimi.domain.content import TextPart, ThinkPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    ChatProviderError,
    ModelError,
)
from kimi.domain.message import Function, Message, ToolCall, ToolCallPart, user_message
from kimi.domain.stream import MergedPart, PartMerger
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.models.http import HttpLayer, HttpLimits
from kimi.infrastructure.models.open import open_model
from kimi.infrastructure.models.scripted import scripted_model
from tests.provider_server import Event, ProviderServer, Reply, call_events, chunk, end_events, provider, text_events

pytestmark = pytest.mark.anyio

HISTORY = [user_message("hello")]


@dataclass(frozen=True)
class Answer:
    """What the model is to say, or how it is to fail."""

    think: str | None = None
    text: str | None = None
    calls: tuple[tuple[str, str, str], ...] = ()
    usage: bool = True
    error: str | None = None


OpenRig = AbstractAsyncContextManager["Rig"]


@dataclass
class Rig:
    """A model that will give the answers, and the server behind it if there is one."""

    model: ChatModel
    server: ProviderServer | None = None


def as_script(answer: Answer) -> str:
    if answer.error is not None:
        return f"text: lost\nerror: {answer.error}"
    lines = ["id: m1"]
    lines += [f"think: {answer.think}"] if answer.think is not None else []
    lines += [f"text: {answer.text}"] if answer.text is not None else []
    lines += ["tool_call: " + json.dumps({"id": i, "name": n, "arguments": a}) for i, n, a in answer.calls]
    lines += ["usage: input_other=6 input_cache_read=4 output=5"] if answer.usage else []
    return "\n".join(lines)


def as_reply(answer: Answer) -> Reply:
    if answer.error == "connection":
        return Reply(text_events("lost"), fault="reset", fault_after=1)
    if answer.error == "timeout":
        return Reply(fault="mute")
    if answer.error is not None:
        return Reply(status=int(answer.error), body=b"no")
    events: list[Event] = [chunk({"reasoning_content": answer.think})] if answer.think is not None else []
    events += text_events(*(answer.text or ""))
    for index, (call_id, name, arguments) in enumerate(answer.calls):
        events += call_events(index, call_id, name, arguments, piece=3)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4} if answer.usage else None
    return Reply([*events, *end_events("tool_calls" if answer.calls else "stop", usage)])


@asynccontextmanager
async def open_rig(kind: str, answers: Sequence[Answer]) -> AsyncGenerator[Rig]:
    if kind == "scripted":
        yield Rig(scripted_model([as_script(answer) for answer in answers], False, frozenset({"thinking"}), 1000))
        return
    async with provider(map(as_reply, answers)) as server:
        http = HttpLayer({}, HttpLimits(read_s=0.3))
        settings = ModelSettings(
            provider_name="p", type=kind, model="m", base_url=server.base_url, max_context_size=1000
        )
        settings = settings.model_copy(update={"capabilities": frozenset({"thinking"})})
        yield Rig(open_model(settings, "s", http, lambda: "KimiCLI/2", {}), server)
        await http.close()


@pytest.fixture(params=["scripted", "openai_legacy", "kimi"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


async def ask(model: ChatModel, history: Sequence[Message] = HISTORY) -> list[ModelItem]:
    async with model.stream("system", history, [], 0) as items:
        return [item async for item in items]


def merged(items: Sequence[ModelItem]) -> list[MergedPart]:
    merger = PartMerger()
    parts = [part for item in items if not isinstance(item, ResponseEnd) for part in merger.push(item)]
    return parts + merger.flush()


async def test_it_tells_its_name_its_capabilities_and_its_window(kind: str) -> None:
    async with open_rig(kind, []) as rig:
        assert rig.model.name
        assert rig.model.capabilities == frozenset({"thinking"})
        assert rig.model.context_size == 1000


async def test_the_parts_come_in_order_and_the_end_comes_last_and_once(kind: str) -> None:
    answer = Answer("let me see", "good day", (("tc1", "Shell", '{"command":"ls"}'),))
    async with open_rig(kind, [answer]) as rig:
        items = await ask(rig.model)
    assert merged(items) == [
        ThinkPart("let me see"),
        TextPart("good day"),
        ToolCall("tc1", Function("Shell", '{"command":"ls"}')),
    ]
    assert [index for index, item in enumerate(items) if isinstance(item, ResponseEnd)] == [len(items) - 1]


async def test_the_end_carries_id_usage_and_stop_reason(kind: str) -> None:
    async with open_rig(kind, [Answer(text="good day"), Answer(text="again", usage=False)]) as rig:
        first, second = (await ask(rig.model))[-1], (await ask(rig.model))[-1]
    assert isinstance(first, ResponseEnd)
    assert first.message_id
    assert first.usage == TokenUsage(input_other=6, output=5, input_cache_read=4)
    assert first.stop_reason == "end"
    assert isinstance(second, ResponseEnd)
    assert second.usage is None


async def test_tool_calls_have_distinct_ids_when_they_are_given_out(kind: str) -> None:
    calls = tuple((call_id, "Shell", "{}") for call_id in ("", "same", "same", ""))
    async with open_rig(kind, [Answer(calls=calls)]) as rig:
        items = await ask(rig.model)
    ids = [item.id for item in items if isinstance(item, ToolCall)]
    assert len(ids) == 4
    assert all(ids)
    assert len(set(ids)) == 4
    assert "same" in ids


async def test_pieces_follow_their_call(kind: str) -> None:
    calls = tuple((f"tc{number}", "Shell", json.dumps({"command": f"echo {number}"})) for number in range(200))
    async with open_rig(kind, [Answer(calls=calls)]) as rig:
        items = await ask(rig.model)
    assert merged(items) == [ToolCall(call_id, Function(name, text)) for call_id, name, text in calls]
    assert not isinstance(items[0], ToolCallPart)


@pytest.mark.spec("R-85")
@pytest.mark.parametrize("answer", [Answer(), Answer(text="  "), Answer(think="", text=" ")])
async def test_an_answer_with_nothing_to_see_is_an_error(kind: str, answer: Answer) -> None:
    async with open_rig(kind, [answer]) as rig:
        with pytest.raises(ChatProviderError) as raised:
            await ask(rig.model)
    no_script = kind == "scripted" and answer == Answer()
    assert isinstance(raised.value, APIEmptyResponseError) or no_script


@pytest.mark.spec("R-85")
@pytest.mark.parametrize("answer", [Answer(think="hm"), Answer(think="hm", text=" ")])
async def test_thinking_alone_is_an_empty_answer(kind: str, answer: Answer) -> None:
    async with open_rig(kind, [answer]) as rig:
        with pytest.raises(APIEmptyResponseError) as raised:
            await ask(rig.model)
    assert raised.value.transient


@pytest.mark.parametrize(
    ("error", "expected", "transient"),
    [
        ("connection", APIConnectionError, True),
        ("timeout", APITimeoutError, True),
        ("429", APIStatusError, True),
        ("529", APIStatusError, True),
        ("400", APIStatusError, False),
        ("401", APIStatusError, False),
    ],
)
async def test_failures_are_of_the_model_branch(kind: str, error: str, expected: type, transient: bool) -> None:
    async with open_rig(kind, [Answer(error=error)]) as rig:
        with pytest.raises(ModelError) as raised:
            await ask(rig.model)
    assert type(raised.value) is expected
    assert isinstance(raised.value, ChatProviderError)
    assert raised.value.transient is transient
    assert str(raised.value)


async def test_after_a_failure_the_next_call_works(kind: str) -> None:
    async with open_rig(kind, [Answer(error="503"), Answer(error="connection"), Answer(text="well")]) as rig:
        for _ in range(2):
            with pytest.raises(ChatProviderError):
                await ask(rig.model)
        assert merged(await ask(rig.model)) == [TextPart("well")]


async def test_every_call_is_one_request(kind: str) -> None:
    async with open_rig(kind, [Answer(error="503"), Answer(error="connection"), Answer(error="timeout")]) as rig:
        for _ in range(3):
            with pytest.raises(ChatProviderError):
                await ask(rig.model)
        assert rig.server is None or len(rig.server.requests) == 3


async def test_cancellation_while_waiting_ends_the_call_and_the_connection(kind: str) -> None:
    async with open_rig(kind, [Answer(text="on and on"), Answer(text="well")]) as rig:
        if rig.server is not None:
            rig.server.replies[0] = Reply(text_events("on and on"), fault="stall", fault_after=1)
        with anyio.move_on_after(0.1) as scope:
            async with rig.model.stream("system", HISTORY, [], 0) as items:
                await _forever(items)
        assert scope.cancelled_caught
        await _closed(rig)
        assert merged(await ask(rig.model)) == [TextPart("well")]


async def test_leaving_early_closes_the_connection(kind: str) -> None:
    async with open_rig(kind, [Answer(text="on and on"), Answer(text="well")]) as rig:
        if rig.server is not None:
            rig.server.replies[0] = Reply(text_events("on and on"), fault="stall", fault_after=1)
        async with rig.model.stream("system", HISTORY, [], 0) as items:
            assert await anext(items)
        await _closed(rig)
        assert merged(await ask(rig.model)) == [TextPart("well")]


async def test_calls_may_run_at_the_same_time(kind: str) -> None:
    results: list[list[MergedPart]] = []
    async with open_rig(kind, [Answer(text="the same")] * 8) as rig, anyio.create_task_group() as group:

        async def one(number: int) -> None:
            results.append(merged(await ask(rig.model, [user_message(f"hello {number}")])))

        for number in range(8):
            group.start_soon(one, number)
    assert results == [[TextPart("the same")]] * 8


async def _forever(items: AsyncIterator[ModelItem]) -> None:
    async for _ in items:
        pass
    await anyio.sleep_forever()


async def _closed(rig: Rig) -> None:
    """The server sees at once that the client went away."""
    if rig.server is not None:
        with anyio.fail_after(5):
            await rig.server.requests[0].gone.wait()
