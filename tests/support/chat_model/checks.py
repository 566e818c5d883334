"""The promises of every `ChatModel`, as checks that run on a stage: see `tests.contracts.test_chat_model`.

They are functions apart from the tests, so that they can be run on broken models, too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

import anyio

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.domain.content.message import ToolCall, ToolCallPart, user_message
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.content.stream import MergedPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    ChatProviderError,
)
from kimi.domain.turn import StopReason, TokenUsage
from tests.support.chat_model.sent import (
    replaces_pictures_for_a_model_that_is_blind,
    sends_back_what_the_model_said,
    sends_requests_that_the_service_takes,
)
from tests.support.chat_model.stage import (
    CAPABILITIES,
    HISTORY,
    KEY,
    TIMEOUT_S,
    WINDOW,
    Failure,
    HttpStage,
    Rig,
    Stage,
    ask,
    calls_of,
    end_of,
    exchange,
    failure,
    gone,
    merged,
)
from tests.support.dialects.script import CACHED, INPUT, OUTPUT, Answer
from tests.support.providers.provider_server import Reply, dumps

S = TypeVar("S", Stage, HttpStage)
Check: TypeAlias = Callable[[S], Awaitable[None]]

TRANSIENT = (408, 409, 429, 500, 502, 503, 504, 529)
FINAL = (400, 401, 403, 404, 413, 422, 501)
CALL = ("tc1", "Shell", '{"command":"ls"}')


# --- every model ------------------------------------------------------------------------------------------------


async def tells_its_name_capabilities_and_window(stage: Stage) -> None:
    async with stage.say() as rig:
        assert rig.model.name
        assert rig.model.capabilities == CAPABILITIES
        assert rig.model.context_size == WINDOW


async def gives_parts_in_order_and_one_end_last(stage: Stage) -> None:
    async with stage.say(Answer("let me see", None, "good day", (CALL,))) as rig:
        items = await ask(rig.model)
    assert [part for part in merged(items) if not isinstance(part, ToolCall)] == [
        ThinkPart("let me see"),
        TextPart("good day"),
    ]
    assert calls_of(items) == [("Shell", {"command": "ls"})]
    assert isinstance(merged(items)[-1], ToolCall)
    assert [index for index, item in enumerate(items) if isinstance(item, ResponseEnd)] == [len(items) - 1]


async def counts_tokens(stage: Stage) -> None:
    async with stage.say(Answer(text="good day"), Answer(text="again", usage=False)) as rig:
        first, second = end_of(await ask(rig.model)), end_of(await ask(rig.model))
    assert first.usage == TokenUsage(input_other=INPUT - CACHED, output=OUTPUT, input_cache_read=CACHED)
    assert second.usage is None


async def names_the_message_and_why_it_ended(stage: Stage) -> None:
    async with stage.say(Answer(text="good day")) as rig:
        end = end_of(await ask(rig.model))
    assert end.message_id
    assert end.stop_reason == "end"


async def gives_every_call_an_id_of_its_own(stage: Stage) -> None:
    calls = tuple((call_id, "Shell", "{}") for call_id in ("", "same", "same", ""))
    async with stage.say(Answer(calls=calls)) as rig:
        ids = [item.id for item in await ask(rig.model) if isinstance(item, ToolCall)]
    assert len(ids) == 4
    assert all(ids)
    assert len(set(ids)) == 4


async def keeps_two_hundred_calls_apart(stage: Stage) -> None:
    calls = tuple((f"tc{number}", "Shell", json.dumps({"command": f"echo {number}"})) for number in range(200))
    async with stage.say(Answer(calls=calls)) as rig:
        items = await ask(rig.model)
    assert calls_of(items) == [("Shell", {"command": f"echo {number}"}) for number in range(200)]
    assert not isinstance(items[0], ToolCallPart)


async def passes_on_calls_of_unknown_tools(stage: Stage) -> None:
    async with stage.say(Answer(calls=(("tc1", "Nonesuch", "{}"),))) as rig:
        assert calls_of(await ask(rig.model)) == [("Nonesuch", {})]


async def takes_nothing_to_see_for_an_error(stage: Stage) -> None:
    for answer in (Answer(text="  "), Answer(think="hm"), Answer(think="hm", text=" ")):
        async with stage.say(answer) as rig:
            error = await failure(rig)
        assert type(error) is APIEmptyResponseError, answer
        assert error.transient
        assert ("only thought" in str(error)) is (answer.think is not None)


async def fails_within_the_model_branch(stage: Stage) -> None:
    expected = {"connection": APIConnectionError, "timeout": APITimeoutError, "429": APIStatusError}
    for what, kind in {**expected, "529": APIStatusError, "400": APIStatusError, "401": APIStatusError}.items():
        async with stage.say(Failure(what)) as rig:
            error = await failure(rig)
        assert type(error) is kind, what
        assert error.transient is (what not in ("400", "401"))
        assert str(error)


async def works_again_after_a_failure(stage: Stage) -> None:
    async with stage.say(Failure("503"), Failure("connection"), Answer(text="well")) as rig:
        for _ in range(2):
            await failure(rig)
        assert merged(await ask(rig.model)) == [TextPart("well")]


async def serves_several_callers_at_a_time(stage: Stage) -> None:
    results: list[list[MergedPart]] = []
    async with stage.say(*[Answer(text="the same")] * 8) as rig, anyio.create_task_group() as group:

        async def one(number: int) -> None:
            results.append(merged(await ask(rig.model, [user_message(f"hello {number}")])))

        for number in range(8):
            group.start_soon(one, number)
    assert results == [[TextPart("the same")]] * 8


# --- models over HTTP: what comes back --------------------------------------------------------------------------


async def gives_calls_the_id_of_the_provider(stage: HttpStage) -> None:
    async with stage.say(Answer(calls=(CALL, ("tc2", "Shell", "{}")))) as rig:
        ids = [item.id for item in await ask(rig.model) if isinstance(item, ToolCall)]
    assert ids == [stage.row.dialect.call_id(call_id, "Shell") for call_id in ("tc1", "tc2")]


async def tells_why_the_model_stopped(stage: HttpStage) -> None:
    reasons: tuple[StopReason, ...] = ("end", "length", "content_filter", "unknown")
    for reason in reasons:
        async with stage.say(Answer(text="so", stop=reason)) as rig:
            assert end_of(await ask(rig.model)).stop_reason == reason
    async with stage.say(Answer(calls=(CALL,))) as rig:
        assert end_of(await ask(rig.model)).stop_reason == "tool_calls"


async def gives_the_same_text_in_any_framing(stage: HttpStage) -> None:
    text = "grüße, 月光 🌙 \u2028 \x85 end"
    for framing in (None, 1, 7, 65_536, 0):
        for line_end in (b"\n", b"\r\n"):
            reply = stage.row.dialect.reply(Answer("思い", None, text), framing=framing, line_end=line_end)
            async with stage.serve(reply) as rig:
                assert merged(await ask(rig.model)) == [ThinkPart("思い"), TextPart(text)], (framing, line_end)


async def passes_text_on_while_it_comes(stage: HttpStage) -> None:
    reply = stage.row.dialect.cut(Answer(text="on and on"), fault="stall")
    async with stage.serve(reply) as rig:
        seen: list[ModelItem] = []
        with anyio.fail_after(2 * rig.patience_s):
            async with rig.model.stream("system", HISTORY, [], 0) as items:
                while not merged(seen) or merged(seen) != [TextPart("on and on")]:
                    seen.append(await anext(items))


async def ends_when_the_provider_says_so(stage: HttpStage) -> None:
    """The state of the connection afterwards does not matter."""
    dialect = stage.row.dialect
    if not (dialect.done or dialect.named):
        return
    events = dialect.events(Answer(text="so"))
    reply = dialect.reply(Answer(text="so"), fault="stall", fault_after=len(events) + dialect.done)
    async with stage.serve(reply) as rig:
        with anyio.fail_after(2 * rig.patience_s):
            assert merged(await ask(rig.model)) == [TextPart("so")]


async def passes_on_malformed_arguments(stage: HttpStage) -> None:
    if not stage.row.dialect.streams_arguments:
        return
    for arguments in ('{"command":', "not json", "[1]", '{"command":"ls"}}'):
        async with stage.say(Answer(calls=(("tc1", "Shell", arguments),)), Answer(text="well")) as rig:
            items = await ask(rig.model)
            call = merged(items)[0]
            assert isinstance(call, ToolCall)
            assert call.function.arguments == arguments
            await ask(rig.model, [*HISTORY, *exchange(items)])
            stage.row.dialect.check(rig.provider.requests[-1])


async def skips_events_that_say_nothing(stage: HttpStage) -> None:
    dialect = stage.row.dialect
    whole = dialect.events(Answer(text="good day"))
    for event in dialect.harmless:
        for at in (1, len(whole) - 1):
            reply = replace(dialect.reply(Answer()), events=[*whole[:at], event, *whole[at:]])
            async with stage.serve(reply) as rig:
                assert merged(await ask(rig.model)) == [TextPart("good day")], (event, at)


async def refuses_events_that_are_none(stage: HttpStage) -> None:
    for event in stage.row.dialect.broken:
        async with stage.serve(stage.row.dialect.with_event(event, Answer(text="a"))) as rig:
            error = await failure(rig)
        assert type(error) is ChatProviderError, event
        assert not error.transient


# --- models over HTTP: what goes wrong --------------------------------------------------------------------------


async def reports_that_nobody_listens(stage: HttpStage) -> None:
    async with stage.serve() as rig:
        closed = rig.provider.base_url
    async with stage.serve(base_url=closed) as rig:
        assert type(await failure(rig)) is APIConnectionError


async def reports_a_proxy_that_cannot_be_used(stage: HttpStage) -> None:
    async with stage.serve(environ={"HTTP_PROXY": "ftp://proxy"}) as rig:
        error = await failure(rig)
        assert not rig.provider.requests
    assert type(error) is ChatProviderError
    assert "proxy" in str(error)


async def takes_silence_for_a_timeout(stage: HttpStage) -> None:
    dialect = stage.row.dialect
    stalls = [dialect.cut(Answer(text="ab"), fault="stall"), dialect.cut(Answer(calls=(CALL,)), fault="stall")]
    for reply in (Reply(fault="mute"), *stalls):
        async with stage.serve(reply, read_s=TIMEOUT_S) as rig:
            assert type(await failure(rig)) is APITimeoutError
            await gone(rig)


async def waits_for_slow_heads_and_slow_text(stage: HttpStage) -> None:
    reply = stage.row.dialect.reply(Answer(text="ab"), head_delay_s=0.3, event_delay_s=0.02)
    async with stage.serve(reply, read_s=10) as rig:
        assert merged(await ask(rig.model)) == [TextPart("ab")]


async def never_takes_a_lost_connection_for_the_end(stage: HttpStage) -> None:
    dialect = stage.row.dialect
    text, call = Answer(text="lost"), Answer(text="so", calls=(CALL,))
    cuts = [dialect.cut(answer, fault=fault) for answer in (text, call) for fault in ("close", "reset")]
    unframed = dialect.cut(text, fault="close", framing=0)
    for reply in (*cuts, unframed, Reply(fault="refuse"), Reply(fault="close")):
        async with stage.serve(reply) as rig:
            seen: list[ModelItem] = []
            error = await failure(rig, seen)
            assert type(error) is APIConnectionError, reply
            assert not any(isinstance(item, ResponseEnd) for item in seen)
            assert bool(seen) is bool(reply.events)
            assert len(rig.provider.requests) == 1


async def makes_one_request_per_call(stage: HttpStage) -> None:
    for turn in (Failure("503"), Failure("429"), Failure("connection"), Failure("timeout"), Answer(text="x")):
        async with stage.say(turn) as rig:
            with anyio.fail_after(20):
                try:
                    await ask(rig.model)
                except ChatProviderError:
                    assert isinstance(turn, Failure)
            assert len(rig.provider.requests) == 1, turn


async def sorts_statuses(stage: HttpStage) -> None:
    for status in (*TRANSIENT, *FINAL):
        async with stage.serve(stage.error(status, f"bad luck; your key is {KEY}")) as rig:
            error = await failure(rig)
            assert len(rig.provider.requests) == 1
        assert isinstance(error, APIStatusError)
        assert error.status_code == status
        assert error.transient is (status in TRANSIENT), status
        assert str(status) in str(error)
        assert "bad luck" in str(error)
        assert KEY not in str(error)


async def tells_how_long_to_wait(stage: HttpStage) -> None:
    for status in (429, 503):
        async with stage.serve(stage.error(status, "slow down", Retry_After="7")) as rig:
            error = await failure(rig)
        assert isinstance(error, APIStatusError)
        assert error.retry_after == 7
    async with stage.serve(stage.error(429, "slow down")) as rig:
        error = await failure(rig)
    assert isinstance(error, APIStatusError)
    assert error.retry_after is None


async def takes_a_used_up_quota_for_final(stage: HttpStage) -> None:
    status, body = stage.row.dialect.quota
    async with stage.serve(Reply(status=status, body=dumps(body))) as rig:
        error = await failure(rig)
    assert isinstance(error, APIStatusError)
    assert error.status_code == status
    assert not error.transient


async def reports_errors_inside_the_stream(stage: HttpStage) -> None:
    dialect = stage.row.dialect
    event = dialect.stream_error(f"too busy for {KEY}")
    async with stage.serve(dialect.with_event(event, Answer(text="a"))) as rig:
        error = await failure(rig)
    assert isinstance(error, APIStatusError)
    assert error.transient
    assert "too busy" in str(error)
    assert KEY not in str(error)


async def takes_documents_for_no_answer(stage: HttpStage) -> None:
    page = Reply(body=b"<html>", headers={"Content-Type": "text/html"})
    for reply in (page, Reply(body=b"{}")):
        async with stage.serve(reply) as rig:
            error = await failure(rig)
        assert type(error) is ChatProviderError
        assert "base URL" in str(error)


async def takes_an_answer_without_parts_for_empty(stage: HttpStage) -> None:
    async with stage.say(Answer()) as rig:
        assert type(await failure(rig)) is APIEmptyResponseError


# --- models over HTTP: connections ------------------------------------------------------------------------------


async def closes_the_connection_when_cancelled(stage: HttpStage) -> None:
    stall = stage.row.dialect.cut(Answer(text="on and on"), fault="stall")
    for reply in (stall, Reply(fault="mute")):
        async with stage.serve(reply, stage.reply(Answer(text="well"))) as rig:
            with anyio.move_on_after(2 * rig.patience_s) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(_cancel_once_asked, rig, group.cancel_scope)
                    async with rig.model.stream("system", HISTORY, [], 0) as items:
                        await _forever(items)
            assert not scope.cancelled_caught, "the cancellation was swallowed"
            await gone(rig)
            assert merged(await ask(rig.model)) == [TextPart("well")]


async def closes_the_connection_when_left_early(stage: HttpStage) -> None:
    stall = stage.row.dialect.cut(Answer(text="on and on"), fault="stall")
    async with stage.serve(stall, stage.reply(Answer(text="well"))) as rig:
        async with rig.model.stream("system", HISTORY, [], 0) as items:
            assert await anext(items)
        await gone(rig)
        assert merged(await ask(rig.model)) == [TextPart("well")]


async def uses_a_connection_again(stage: HttpStage) -> None:
    async with stage.say(Answer(text="well")) as rig:
        for _ in range(5):
            await ask(rig.model)
        assert rig.provider.connections == 1


async def _cancel_once_asked(rig: Rig, scope: anyio.CancelScope) -> None:
    await rig.provider.asked.wait()
    await anyio.sleep(0.05)
    scope.cancel()


async def _forever(items: AsyncIterator[ModelItem]) -> None:
    async for _ in items:
        pass
    await anyio.sleep_forever()


EVERY: tuple[Check[Stage], ...] = (
    tells_its_name_capabilities_and_window,
    gives_parts_in_order_and_one_end_last,
    counts_tokens,
    names_the_message_and_why_it_ended,
    gives_every_call_an_id_of_its_own,
    keeps_two_hundred_calls_apart,
    passes_on_calls_of_unknown_tools,
    takes_nothing_to_see_for_an_error,
    fails_within_the_model_branch,
    works_again_after_a_failure,
    serves_several_callers_at_a_time,
)
"""The checks for every model."""

OVER_HTTP: tuple[Check[HttpStage], ...] = (
    gives_calls_the_id_of_the_provider,
    tells_why_the_model_stopped,
    gives_the_same_text_in_any_framing,
    passes_text_on_while_it_comes,
    ends_when_the_provider_says_so,
    passes_on_malformed_arguments,
    skips_events_that_say_nothing,
    refuses_events_that_are_none,
    reports_that_nobody_listens,
    reports_a_proxy_that_cannot_be_used,
    takes_silence_for_a_timeout,
    waits_for_slow_heads_and_slow_text,
    never_takes_a_lost_connection_for_the_end,
    makes_one_request_per_call,
    sorts_statuses,
    tells_how_long_to_wait,
    takes_a_used_up_quota_for_final,
    reports_errors_inside_the_stream,
    takes_documents_for_no_answer,
    takes_an_answer_without_parts_for_empty,
    closes_the_connection_when_cancelled,
    closes_the_connection_when_left_early,
    uses_a_connection_again,
    sends_requests_that_the_service_takes,
    replaces_pictures_for_a_model_that_is_blind,
    sends_back_what_the_model_said,
)
"""The checks for every model over HTTP."""
