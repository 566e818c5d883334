"""The contract of `ChatModel` is worth something: each of its checks fails for a model that breaks its promise."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import anyio
import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.domain.content.message import Function, Message, ToolCall, ToolCallPart
from kimi.domain.content.parts import ImagePart, TextPart, ThinkPart
from kimi.domain.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ChatProviderError,
    ConfigError,
)
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import TokenUsage
from tests.support.chat_model import checks
from tests.support.chat_model.checks import EVERY, OVER_HTTP, Check
from tests.support.chat_model.stage import CAPABILITIES, KEY, WINDOW, Failure, HttpStage
from tests.support.dialects.script import Answer, Row
from tests.support.dialects.table import ROWS
from tests.support.providers.provider_server import Reply

pytestmark = pytest.mark.anyio

Items: TypeAlias = AsyncIterator[ModelItem]
Asked: TypeAlias = tuple[str, Sequence[Message], Sequence[ToolSpec], int]

SPOILED_ROWS = [row for row in ROWS if row.type in ("kimi", "anthropic")]


@dataclass
class Spoiled:
    """A `ChatModel` with something wrong: in what it tells, asks, gives out, or raises."""

    model: ChatModel
    name: str = "m"
    capabilities: frozenset[str] = CAPABILITIES
    context_size: int = WINDOW
    asked: Callable[[Asked], Asked] = lambda asked: asked
    items: Callable[[Items], Items] = lambda items: items
    error: Callable[[ChatProviderError], Exception | None] = lambda error: error
    """None: the error is swallowed."""
    failed: bool = field(default=False, init=False)
    running: int = field(default=0, init=False)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        async with self.model.stream(*self.asked((system, history, tools, tokens_used))) as items:
            yield self._given(items)

    async def _given(self, items: Items) -> Items:
        """The spoiled items. A swallowed error looks like an end."""
        try:
            async for item in self.items(items):
                yield item
        except ChatProviderError as error:
            if (other := self.error(error)) is not None:
                raise other from None
            yield ResponseEnd("m", None, "end")


class SpoiledOnEntry(Spoiled):
    """Its errors are wrong when the answer begins with them."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        try:
            async with self.model.stream(system, history, tools, tokens_used) as items:
                yield items
        except ChatProviderError as error:
            if (other := self.error(error)) is not None:
                raise other from None


class Stubborn(Spoiled):
    """Tries again by itself."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        try:
            async with self.model.stream(system, history, tools, tokens_used) as items:
                whole = [item async for item in items]
        except ChatProviderError:
            async with self.model.stream(system, history, tools, tokens_used) as items:
                whole = [item async for item in items]
        yield _each(whole)


class Resentful(Spoiled):
    """Never works again after a failure."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        if self.failed:
            raise APIConnectionError("no more")
        try:
            async with self.model.stream(system, history, tools, tokens_used) as items:
                yield items
        except ChatProviderError:
            self.failed = True
            raise


class Exclusive(Spoiled):
    """Serves one caller at a time."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        if self.running:
            raise APIConnectionError("busy")
        self.running += 1
        try:
            async with self.model.stream(system, history, tools, tokens_used) as items:
                yield items
        finally:
            self.running -= 1


class Hurried(Spoiled):
    """Has no patience."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        try:
            with anyio.fail_after(0.1):
                async with self.model.stream(system, history, tools, tokens_used) as items:
                    whole = [item async for item in items]
        except TimeoutError:
            raise APITimeoutError("too slow") from None
        yield _each(whole)


_LEAKED: list[AbstractAsyncContextManager[Items]] = []


class Patient(Spoiled):
    """Waits for more when nothing more comes."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        async with self.model.stream(system, history, tools, tokens_used) as items:
            whole = [item async for item in items]
        await anyio.sleep_forever()
        yield _each(whole)


class Leaking(Spoiled):
    """Leaves its connections open."""

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[Items]:
        context = self.model.stream(system, history, tools, tokens_used)
        _LEAKED.append(context)
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            self.kept = await context.__aenter__()
        yield self.kept


async def _each(items: Sequence[ModelItem]) -> Items:
    for item in items:
        yield item


def whole(change: Callable[[list[ModelItem]], Sequence[ModelItem]]) -> Callable[[Items], Items]:
    """Waits for everything and then changes it."""

    async def changed(items: Items) -> Items:
        for item in change([item async for item in items]):
            yield item

    return changed


def each(change: Callable[[ModelItem], ModelItem | None]) -> Callable[[Items], Items]:
    """Changes one item at a time; None leaves it out."""

    async def changed(items: Items) -> Items:
        async for item in items:
            if (other := change(item)) is not None:
                yield other

    return changed


def on(kind: type[Any], change: Callable[[Any], ModelItem | None]) -> Callable[[Items], Items]:
    """Changes the items of one kind."""
    return each(lambda item: change(item) if isinstance(item, kind) else item)


def end(**fields: Any) -> Callable[[Items], Items]:
    """Changes the end."""
    return on(ResponseEnd, lambda item: replace(item, **fields))


def all_usage_is_fresh(item: ResponseEnd) -> ResponseEnd:
    """Does not tell cached tokens apart."""
    return item if item.usage is None else replace(item, usage=TokenUsage(item.usage.input, item.usage.output))


def pieces_last(items: list[ModelItem]) -> list[ModelItem]:
    """Pieces of arguments after all calls."""
    return sorted(items, key=lambda item: isinstance(item, ToolCallPart) + 2 * isinstance(item, ResponseEnd))


def first_calls(items: list[ModelItem]) -> list[ModelItem]:
    """No more than a hundred calls."""
    starts = [at for at, item in enumerate(items) if isinstance(item, ToolCall)]
    return items if len(starts) <= 100 else [*items[: starts[100]], items[-1]]


def numbered(items: list[ModelItem]) -> list[ModelItem]:
    """Calls with ids of our own."""
    return [replace(item, id=f"own-{at}") if isinstance(item, ToolCall) else item for at, item in enumerate(items)]


def mended(items: list[ModelItem]) -> list[ModelItem]:
    """Calls with sound arguments only."""
    calls = [ToolCall(item.id, Function(item.function.name, "{}")) for item in items if isinstance(item, ToolCall)]
    return [*calls, items[-1]]


def unless(kind: type[ChatProviderError], other: Callable[[Any], Exception | None]) -> Callable[[Any], Any]:
    """Another error, or none, in the place of those of one kind."""
    return lambda error: other(error) if isinstance(error, kind) else error


def status(**changed: Any) -> Callable[[Any], Any]:
    """Status errors with other attributes."""

    def change(error: APIStatusError) -> APIStatusError:
        for name, value in changed.items():
            setattr(error, name, value)
        return error

    return unless(APIStatusError, change)


def reworded(text: str) -> Callable[[Any], Any]:
    """Status errors with another text."""
    return unless(APIStatusError, lambda error: APIStatusError(error.status_code, text.format(error)))


def pictures_as_text(message: Message) -> Message:
    """Pictures written out."""
    parts = (TextPart(part.image_url.url) if isinstance(part, ImagePart) else part for part in message.content)
    return replace(message, content=tuple(parts))


def without_thinking(message: Message) -> Message:
    """Thinking left out."""
    return replace(message, content=tuple(part for part in message.content if not isinstance(part, ThinkPart)))


def of_history(change: Callable[[Message], Message]) -> Callable[[Asked], Asked]:
    """Changes each message before it is sent."""
    return lambda asked: (asked[0], [change(one) for one in asked[1]], *asked[2:])


ASCII = re.compile("[^\x00-\x7f]")
REQUEST = checks.sends_requests_that_the_service_takes

MUTANTS: list[tuple[Check[Any], Callable[[ChatModel], ChatModel]]] = [
    (checks.tells_its_name_capabilities_and_window, lambda model: Spoiled(model, name="")),
    (checks.tells_its_name_capabilities_and_window, lambda model: Spoiled(model, capabilities=frozenset())),
    (checks.tells_its_name_capabilities_and_window, lambda model: Spoiled(model, context_size=1)),
    (checks.gives_parts_in_order_and_one_end_last, lambda m: Spoiled(m, items=on(ResponseEnd, lambda item: None))),
    (checks.gives_parts_in_order_and_one_end_last, lambda m: Spoiled(m, items=whole(lambda all: [*all, all[-1]]))),
    (checks.gives_parts_in_order_and_one_end_last, lambda m: Spoiled(m, items=whole(lambda all: all[::-1]))),
    (checks.gives_parts_in_order_and_one_end_last, lambda m: Spoiled(m, items=whole(lambda all: all[1:]))),
    (checks.gives_parts_in_order_and_one_end_last, lambda m: Spoiled(m, items=on(ThinkPart, lambda item: None))),
    (checks.gives_parts_in_order_and_one_end_last, lambda m: Spoiled(m, items=on(ToolCallPart, lambda item: None))),
    (checks.counts_tokens, lambda model: Spoiled(model, items=end(usage=None))),
    (checks.counts_tokens, lambda model: Spoiled(model, items=end(usage=TokenUsage(6, 5, 4)))),
    (checks.counts_tokens, lambda model: Spoiled(model, items=on(ResponseEnd, all_usage_is_fresh))),
    (checks.names_the_message_and_why_it_ended, lambda model: Spoiled(model, items=end(message_id=None))),
    (checks.names_the_message_and_why_it_ended, lambda model: Spoiled(model, items=end(stop_reason="unknown"))),
    (checks.gives_every_call_an_id_of_its_own, lambda m: Spoiled(m, items=on(ToolCall, lambda i: replace(i, id="")))),
    (checks.gives_every_call_an_id_of_its_own, lambda m: Spoiled(m, items=on(ToolCall, lambda i: replace(i, id="a")))),
    (checks.keeps_two_hundred_calls_apart, lambda model: Spoiled(model, items=whole(pieces_last))),
    (checks.keeps_two_hundred_calls_apart, lambda model: Spoiled(model, items=whole(first_calls))),
    (checks.passes_on_calls_of_unknown_tools, lambda m: Spoiled(m, items=on(ToolCall, lambda item: None))),
    (
        checks.takes_nothing_to_see_for_an_error,
        lambda m: Spoiled(m, error=lambda error: None),
    ),
    (checks.fails_within_the_model_branch, lambda m: SpoiledOnEntry(m, error=lambda error: OSError("broken"))),
    (checks.fails_within_the_model_branch, lambda m: SpoiledOnEntry(m, error=lambda error: ChatProviderError("no"))),
    (checks.works_again_after_a_failure, Resentful),
    (checks.serves_several_callers_at_a_time, Exclusive),
    (checks.gives_calls_the_id_of_the_provider, lambda model: Spoiled(model, items=whole(numbered))),
    (checks.tells_why_the_model_stopped, lambda model: Spoiled(model, items=end(stop_reason="end"))),
    (
        checks.gives_the_same_text_in_any_framing,
        lambda m: Spoiled(m, items=on(TextPart, lambda item: TextPart(ASCII.sub("?", item.text)))),
    ),
    (checks.passes_text_on_while_it_comes, lambda model: Spoiled(model, items=whole(lambda all: all))),
    (checks.ends_when_the_provider_says_so, Patient),
    (checks.passes_on_malformed_arguments, lambda model: Spoiled(model, items=whole(mended))),
    (checks.reports_that_nobody_listens, lambda m: SpoiledOnEntry(m, error=lambda error: APITimeoutError("late"))),
    (checks.reports_a_proxy_that_cannot_be_used, lambda m: SpoiledOnEntry(m, error=lambda error: ConfigError("no"))),
    (checks.takes_silence_for_a_timeout, lambda m: Spoiled(m, error=lambda error: APIConnectionError("gone"))),
    (checks.waits_for_slow_heads_and_slow_text, Hurried),
    (checks.never_takes_a_lost_connection_for_the_end, lambda m: Spoiled(m, error=lambda error: None)),
    (checks.makes_one_request_per_call, Stubborn),
    (checks.sorts_statuses, lambda model: SpoiledOnEntry(model, error=status(transient=True))),
    (checks.sorts_statuses, lambda model: SpoiledOnEntry(model, error=status(transient=False))),
    (checks.sorts_statuses, lambda model: SpoiledOnEntry(model, error=status(status_code=500))),
    (checks.sorts_statuses, lambda model: SpoiledOnEntry(model, error=reworded("sorry"))),
    (checks.sorts_statuses, lambda model: SpoiledOnEntry(model, error=reworded("{} " + KEY))),
    (checks.tells_how_long_to_wait, lambda model: SpoiledOnEntry(model, error=status(retry_after=None))),
    (checks.tells_how_long_to_wait, lambda model: SpoiledOnEntry(model, error=status(retry_after=7))),
    (checks.takes_a_used_up_quota_for_final, lambda model: SpoiledOnEntry(model, error=status(transient=True))),
    (checks.reports_errors_inside_the_stream, lambda model: Spoiled(model, error=status(transient=False))),
    (checks.reports_errors_inside_the_stream, lambda model: Spoiled(model, error=lambda error: None)),
    (checks.reports_errors_inside_the_stream, lambda model: SpoiledOnEntry(model, error=reworded("{} " + KEY))),
    (checks.takes_documents_for_no_answer, lambda m: SpoiledOnEntry(m, error=lambda error: APIConnectionError("no"))),
    (checks.takes_an_answer_without_parts_for_empty, lambda m: Spoiled(m, error=lambda error: None)),
    (checks.closes_the_connection_when_cancelled, Leaking),
    (checks.closes_the_connection_when_left_early, Leaking),
    (REQUEST, lambda m: Spoiled(m, asked=lambda asked: (asked[0], asked[1][1:], asked[2], asked[3]))),
    (REQUEST, lambda m: Spoiled(m, asked=lambda asked: ("", asked[1], asked[2], asked[3]))),
    (REQUEST, lambda m: Spoiled(m, asked=lambda asked: (asked[0], asked[1], [], asked[3]))),
    (REQUEST, lambda m: Spoiled(m, asked=of_history(lambda message: replace(message, tool_calls=())))),
    (REQUEST, lambda m: Spoiled(m, asked=of_history(lambda message: replace(message, tool_call_id="other")))),
    (checks.replaces_pictures_for_a_model_that_is_blind, lambda m: Spoiled(m, asked=of_history(pictures_as_text))),
    (checks.sends_back_what_the_model_said, lambda m: Spoiled(m, asked=of_history(without_thinking))),
]


FOUND_OUT = (
    AssertionError,
    pytest.fail.Exception,
    TimeoutError,
    OSError,
    ConfigError,
    ChatProviderError,
    ValueError,
    ExceptionGroup,
)
"""How a check ends that fails. No TypeError and the like: the models here are not broken in that way."""


@pytest.mark.parametrize("row", SPOILED_ROWS, ids=lambda row: row.type)
@pytest.mark.parametrize(("check", "spoil"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
async def test_checks_detect_a_model_that_breaks_a_promise(
    row: Row, check: Check[HttpStage], spoil: Callable[[ChatModel], ChatModel]
) -> None:
    with pytest.raises(FOUND_OUT):
        await check(HttpStage(row, spoil, patience_s=0.3))


class ClosingStage(HttpStage):
    """Its server closes the connection after each answer."""

    def reply(self, turn: Answer | Failure) -> Reply:
        return replace(super().reply(turn), framing=0)


@pytest.mark.parametrize("row", SPOILED_ROWS, ids=lambda row: row.type)
async def test_checks_detect_faulty_server_behaviour(row: Row) -> None:
    """Promises that no wrapper can break are broken from the other side."""
    harmful = replace(row.dialect, harmless=[row.dialect.stream_error("no")])
    with pytest.raises(ChatProviderError):
        await checks.skips_events_that_say_nothing(HttpStage(replace(row, dialect=harmful)))
    sound = replace(row.dialect, broken=[b"{}"])
    with pytest.raises(FOUND_OUT):
        await checks.refuses_events_that_are_none(HttpStage(replace(row, dialect=sound)))
    with pytest.raises(FOUND_OUT):
        await checks.uses_a_connection_again(ClosingStage(row))


def test_every_check_has_a_mutant_that_fails_it() -> None:
    from_the_other_side: list[Check[Any]] = [
        checks.skips_events_that_say_nothing,
        checks.refuses_events_that_are_none,
        checks.uses_a_connection_again,
    ]
    tried = {check for check, _ in MUTANTS} | set(from_the_other_side)
    assert tried == {*EVERY, *OVER_HTTP}
