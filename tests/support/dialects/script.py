"""An answer of the loopback provider, and the dialect in which a provider type writes it.

A dialect is how one type writes an answer on the wire. The contract of `ChatModel` runs for every row of
`tests.support.dialects.table`: a provider type with its dialect. A new type is a module here and a row there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kimi.domain.turn import StopReason
from tests.support.providers.provider_server import Event, Json, Recorded, Reply

MESSAGE_ID = "answer-1"
"""The id of every scripted answer, for types that have one."""

INPUT, CACHED, OUTPUT = 10, 4, 5
"""Tokens of every scripted answer: the whole input, the cached part of it, the output."""


@dataclass(frozen=True)
class Answer:
    """An answer: thinking (with a signature, where the type has one), text, calls of (id, name, arguments).

    Text is sent in pieces of one character, arguments in pieces of three. Without `stop` the model stops for its calls,
    or at the end of its text. Without `usage` the answer holds no token counts at all.
    """

    think: str | None = None
    signature: str | None = None
    text: str | None = None
    calls: tuple[tuple[str, str, str], ...] = ()
    usage: bool = True
    stop: StopReason | None = None

    @property
    def why(self) -> StopReason:
        """Why the model stops."""
        return self.stop or ("tool_calls" if self.calls else "end")


def pieces(text: str, size: int) -> list[str]:
    """`text` in pieces of `size` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


@dataclass(frozen=True)
class Dialect:
    """How a provider type writes answers.

    `events(answer)` is the whole answer. `opening(answer)` is the same without its end: the last part is not closed,
    and no event says that the model stopped. `check(request)` asserts that the real service would accept the path,
    headers and body of a request, for any history.
    """

    events: Callable[[Answer], list[Event]]
    opening: Callable[[Answer], list[Event]]
    check: Callable[[Recorded], None]
    error: Callable[[int, str], Json]
    """(HTTP status, text) -> the body of an error answer."""
    stream_error: Callable[[str], Event]
    """(text) -> an event that reports a temporary overload in the middle of a stream."""
    quota: tuple[int, Json]
    """Status and body of the answer when the quota is used up, so that a retry cannot succeed."""
    broken: Sequence[bytes] = (b"{not json", b"[]", b'"text"')
    """Invalid events, beside those of a wrong form."""
    harmless: Sequence[Event] = ()
    """Events that are skipped: keep-alives, empty lists, unknown types."""
    done: bool = True
    """Whether `[DONE]` ends a stream."""
    named: bool = False
    """Whether each event has a name beside its data."""
    streams_arguments: bool = True
    """Whether arguments are streamed as arbitrary text; else they are sent at once as an object."""
    signs: bool = False
    """Whether thinking has a signature that is sent back with it."""
    returns_thinking: bool = True
    """Whether the text of thinking is sent back with the next request."""
    call_id: Callable[[str, str], str] = lambda call_id, name: call_id
    """(id, name) -> the id that the adapter assigns to a call with an id of its own."""

    def reply(self, answer: Answer, **options: Any) -> Reply:
        """Return the reply with the whole answer."""
        return replace(Reply(self.events(answer), done=self.done, named=self.named), **options)

    def cut(self, answer: Answer, **options: Any) -> Reply:
        """Return the reply with the opening of an answer and then a fault: `fault="stall"`, "close" or "reset"."""
        events = self.opening(answer)
        return replace(Reply(events, done=False, named=self.named, fault_after=len(events)), **options)

    def with_event(self, event: Event, answer: Answer) -> Reply:
        """Return the reply with another event after the opening of an answer; the rest of the answer is not sent."""
        return Reply([*self.opening(answer), event], done=self.done, named=self.named)


@dataclass(frozen=True)
class Row:
    """A provider type with its dialect; `settings` are the additional values of its `ModelSettings`."""

    type: str
    dialect: Dialect
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
