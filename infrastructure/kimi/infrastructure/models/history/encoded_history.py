"""A history as a provider wants it, each message encoded once (runtime spec 3.1).

A history grows by a few messages per step, so what was encoded is kept: per step the body costs little more than
one copy of its bytes. How a message is written is the business of the adapter: `UnitRules`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from kimi.domain.content.message import Message, estimate_message, user_message
from kimi.domain.content.parts import (
    ContentPart,
    ImagePart,
    TextPart,
    ThinkPart,
    VideoPart,
    media_placeholder,
    needed_capability,
)

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")

TOKENS_PER_MEDIUM = 2000
"""What a picture or a video counts in the estimate (runtime spec 3.2)."""

BLANK_MESSAGE_NOTE = TextPart("[This message holds no text.]")
"""Stands for a message that is blank: providers refuse it, or the request that has no other."""

LOST_BEGINNING = user_message("[The beginning of this conversation is lost.]")
"""Stands before an answer that comes first, as in a damaged session: some providers want the user to begin."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MEDIA = (ImagePart, VideoPart)
_HISTORIES = 4


def encode_compact_json(value: object) -> bytes:
    """Compact JSON in UTF-8. Never raises on text: a lone surrogate becomes U+FFFD."""
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub("\ufffd", text).encode()


def replace_unreadable_media(message: Message, capabilities: frozenset[str]) -> Message:
    """The copy for a model with `capabilities`: media it cannot read become text (tools spec 1.4)."""
    if not any(_is_unreadable(part, capabilities) for part in message.content):
        return message
    parts = (media_placeholder(part) if _is_unreadable(part, capabilities) else part for part in message.content)
    return replace(message, content=tuple(parts))


def _is_unreadable(part: ContentPart, capabilities: frozenset[str]) -> bool:
    return isinstance(part, _MEDIA) and needed_capability(part) not in capabilities


def can_join_user_messages(first: Message, second: Message) -> bool:
    """Are these two sent as one message: both from the user, and neither a notification (runtime spec 3.1)?"""
    if first.role != "user" or second.role != "user" or first.name != second.name:
        return False
    return not (_is_notification(first) or _is_notification(second))


def can_join_users_or_results(first: Message, second: Message) -> bool:
    """As `can_join_user_messages`; results in a row are sent together, too."""
    return first.role == second.role == "tool" or can_join_user_messages(first, second)


def _is_blank(message: Message) -> bool:
    """Does it say nothing, as a person's may, or an answer that another program stored, perhaps with its thinking?"""
    if message.role not in ("user", "assistant") or message.tool_calls:
        return False
    return all(
        isinstance(part, ThinkPart) or (isinstance(part, TextPart) and not part.text.strip())
        for part in message.content
    )


def _is_notification(message: Message) -> bool:
    head = message.content[0] if message.content else None
    return isinstance(head, TextPart) and head.text.startswith("<notification")


def assemble_body(start: bytes, messages: Sequence[bytes], fields: Sequence[bytes]) -> bytes:
    """A body: `start` opens the list of messages, `fields` follow it. The one copy that is made of a history.

    A comma stands between any two pieces, so a single join does it all.
    """
    pieces = [start + b"".join(messages[:1]), *messages[1:]]
    pieces[-1] += b"]"
    return b",".join((*pieces, *fields))


@dataclass(frozen=True, slots=True)
class UnitRules:
    """How a provider wants messages: what the model can read, which of them are sent as one, how these are written.

    `write` gets them with media that the model cannot read replaced; what it gives may be empty (nothing is sent).
    """

    capabilities: frozenset[str]
    encode_unit: Callable[[Sequence[Message]], bytes]
    can_join: Callable[[Message, Message], bool]


def merge_messages(messages: Sequence[Message]) -> Message:
    """Messages that belong together as one, with the parts of all."""
    if len(messages) == 1:
        return messages[0]
    return replace(messages[0], content=tuple(part for message in messages for part in message.content))


class EncodedHistory:
    """A history in encoded form, brought up to date by looking at its new messages only.

    A unit is what is sent as one message: a message, or several that belong together, as user messages in a row.
    """

    __slots__ = ("_messages", "_rules", "_unit_has_thinking", "_unit_starts", "_unit_tokens", "tokens", "units")

    def __init__(self, rules: UnitRules) -> None:
        self._rules = rules
        self._messages: list[Message] = []
        self._unit_starts: list[int] = []
        self._unit_tokens: list[int] = []
        self._unit_has_thinking: list[bool] = []
        self.units: list[bytes] = []
        self.tokens = 0

    @property
    def has_thinking(self) -> bool:
        """Is there thinking in a message?"""
        return any(self._unit_has_thinking)

    def has_same_start(self, history: Sequence[Message]) -> bool:
        """Does `history` begin with the very message this one begins with?"""
        return bool(self._messages) and bool(history) and self._messages[0] is history[0]

    def update(self, history: Sequence[Message]) -> None:
        """Make this the encoded form of `history`; what has not changed is kept. Raises what `write` raises: it is
        then the form of the messages before."""
        kept = self._count_common_messages(history)
        if 0 < kept < len(history) and self._rules.can_join(history[kept - 1], history[kept]):
            kept -= 1
        kept = self._truncate(kept)
        while kept < len(history):
            kept = self._add_unit(history, kept)

    def last_unit(self) -> list[Message]:
        """The messages of the last unit, as they are sent."""
        return self._prepare_unit(self._messages[self._unit_starts[-1] :])

    def _prepare_unit(self, messages: Sequence[Message]) -> list[Message]:
        unit = [replace_unreadable_media(message, self._rules.capabilities) for message in messages]
        if all(map(_is_blank, unit)):
            thinking = (part for part in unit[0].content if isinstance(part, ThinkPart))
            return [replace(unit[0], content=(*thinking, BLANK_MESSAGE_NOTE))]
        return unit

    def _count_common_messages(self, history: Sequence[Message]) -> int:
        """How many first messages are the same. The usual case, a longer history, is one comparison in C."""
        known = self._messages
        if known == list(history[: len(known)]):
            return len(known)
        pairs = enumerate(zip(known, history, strict=False))
        return next((index for index, (old, new) in pairs if old != new), min(len(known), len(history)))

    def _truncate(self, length: int) -> int:
        """Forget the units that hold messages from `length` on; how many messages the others hold."""
        while len(self._messages) > length:
            del self._messages[self._unit_starts.pop() :]
            self.tokens -= self._unit_tokens.pop()
            self._unit_has_thinking.pop()
            self.units.pop()
        return len(self._messages)

    def _add_unit(self, history: Sequence[Message], start: int) -> int:
        end = start + 1
        while end < len(history) and self._rules.can_join(history[end - 1], history[end]):
            end += 1
        unit = self._prepare_unit(history[start:end])
        written = self._rules.encode_unit(unit)
        tokens = sum(estimate_message(message, per_medium=TOKENS_PER_MEDIUM) for message in unit)
        self._messages += history[start:end]
        self._unit_starts.append(start)
        self._unit_tokens.append(tokens)
        self._unit_has_thinking.append(any(isinstance(part, ThinkPart) for message in unit for part in message.content))
        self.units.append(written)
        self.tokens += tokens
        return end


class EncodedHistoryCache:
    """The encoded histories of one model. A few are kept: subagents and compaction ask in between."""

    __slots__ = ("_histories", "_rules")

    def __init__(self, rules: UnitRules) -> None:
        self._rules = rules
        self._histories: deque[EncodedHistory] = deque(maxlen=_HISTORIES)

    def encode(self, history: Sequence[Message]) -> EncodedHistory:
        """`history` in encoded form; only what is new in it is encoded now."""
        if history and history[0].role == "assistant":
            history = [LOST_BEGINNING, *history]
        encoded = next((one for one in self._histories if one.has_same_start(history)), None)
        if encoded is None:
            encoded = EncodedHistory(self._rules)
        else:
            self._histories.remove(encoded)
        self._histories.append(encoded)
        encoded.update(history)
        return encoded


class LastResultCache(Generic[T, R]):
    """A function whose result is kept until it is asked about another value; values are compared, so they must not
    change."""

    __slots__ = ("_compute", "_last")

    def __init__(self, compute: Callable[[T], R]) -> None:
        self._compute = compute
        self._last: tuple[T, R] | None = None

    def __call__(self, value: T) -> R:
        """What `make` makes of `value`."""
        if self._last is None or self._last[0] != value:
            self._last = (value, self._compute(value))
        return self._last[1]
