"""What the loopback provider is to say, apart from how a provider type says it.

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
"""Tokens of every scripted answer: its whole input, what of it came from the cache, its output."""


@dataclass(frozen=True)
class Answer:
    """What the model says: thinking (with a signature, where the type has one), text, calls of (id, name, arguments).

    Text comes in pieces of one character, arguments in pieces of three. Without `stop` the model stops for its calls,
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
    """How a provider type speaks.

    `events(answer)` is the whole answer. `opening(answer)` is the same, broken off: its parts are there except that
    the last one is not closed, and nothing says that the model stopped. `check(request)` asserts that a request is
    one that the real service would take: its path, headers and body, whatever the history was.
    """

    events: Callable[[Answer], list[Event]]
    opening: Callable[[Answer], list[Event]]
    check: Callable[[Recorded], None]
    error: Callable[[int, str], Json]
    """(HTTP status, text) -> the body of an error answer."""
    stream_error: Callable[[str], Event]
    """(text) -> an event that reports a passing overload in the middle of a stream."""
    quota: tuple[int, Json]
    """Status and body of the answer to a request beyond what was paid for; retrying it is of no use."""
    broken: Sequence[bytes] = (b"{not json", b"[]", b'"text"')
    """Events that are no events; those of a wrong form come beside these."""
    harmless: Sequence[Event] = ()
    """Events that say nothing and are skipped: keep-alives, empty lists, kinds of tomorrow."""
    done: bool = True
    """Does `[DONE]` end a stream?"""
    named: bool = False
    """Has each event a name beside its data?"""
    streams_arguments: bool = True
    """Do arguments come in pieces, as text that may be anything? Else they come at once, as an object."""
    signs: bool = False
    """Does thinking have a signature that goes back with it?"""
    returns_thinking: bool = True
    """Does the text of thinking go back with the next request?"""
    call_id: Callable[[str, str], str] = lambda call_id, name: call_id
    """(id, name) -> the id that the adapter gives a call with an id of its own."""

    def reply(self, answer: Answer, **options: Any) -> Reply:
        """The whole answer."""
        return replace(Reply(self.events(answer), done=self.done, named=self.named), **options)

    def cut(self, answer: Answer, **options: Any) -> Reply:
        """The opening of an answer, and then a fault: `fault="stall"`, "close" or "reset"."""
        events = self.opening(answer)
        return replace(Reply(events, done=False, named=self.named, fault_after=len(events)), **options)

    def with_event(self, event: Event, answer: Answer) -> Reply:
        """An answer in whose middle, after its opening, something else is sent. What comes then is not said."""
        return Reply([*self.opening(answer), event], done=self.done, named=self.named)


@dataclass(frozen=True)
class Row:
    """A provider type and its dialect; `settings` are what its `ModelSettings` need beside the usual."""

    type: str
    dialect: Dialect
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
