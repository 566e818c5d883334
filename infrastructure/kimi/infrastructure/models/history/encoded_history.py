"""A history in the encoding of a provider, with each message encoded once (runtime spec 3.1).

A history grows by a few messages per step, so encoded messages are cached: per step, a body costs little more than one
copy of its bytes. The adapter decides how a message is encoded: `UnitRules`.
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
"""How many tokens a picture or a video counts in the estimate (runtime spec 3.2)."""

BLANK_MESSAGE_NOTE = TextPart("[This message holds no text.]")
"""Replaces a blank message: some providers refuse it, or refuse a request without any other message."""

LOST_BEGINNING = user_message("[The beginning of this conversation is lost.]")
"""Precedes an answer that comes first, as in a damaged session: some providers require the user to begin."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MEDIA = (ImagePart, VideoPart)
_HISTORIES = 4


def encode_compact_json(value: object) -> bytes:
    """Encode a value as compact JSON in UTF-8. It never fails on text: a lone surrogate becomes U+FFFD."""
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub("\ufffd", text).encode()


def replace_unreadable_media(message: Message, capabilities: frozenset[str]) -> Message:
    """Return the message for a model with `capabilities`: media that it cannot read become text (tools spec 1.4)."""
    if not any(_is_unreadable(part, capabilities) for part in message.content):
        return message
    parts = (media_placeholder(part) if _is_unreadable(part, capabilities) else part for part in message.content)
    return replace(message, content=tuple(parts))


def _is_unreadable(part: ContentPart, capabilities: frozenset[str]) -> bool:
    return isinstance(part, _MEDIA) and needed_capability(part) not in capabilities


def can_join_user_messages(first: Message, second: Message) -> bool:
    """Whether two messages are sent as one: both from the user, and neither a notification (runtime spec 3.1)."""
    if first.role != "user" or second.role != "user" or first.name != second.name:
        return False
    return not (_is_notification(first) or _is_notification(second))


def can_join_users_or_results(first: Message, second: Message) -> bool:
    """As `can_join_user_messages`. Consecutive results are sent together, too."""
    return first.role == second.role == "tool" or can_join_user_messages(first, second)


def _is_blank(message: Message) -> bool:
    """Whether a message has no content but blank text and thinking.

    A user may send such a message, and other programs store such answers.
    """
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
    """Return a body: `start` opens the list of messages, `fields` follow it.

    This is the only copy of a history. All pieces are separated by commas, so a single join is enough.
    """
    pieces = [start + b"".join(messages[:1]), *messages[1:]]
    pieces[-1] += b"]"
    return b",".join((*pieces, *fields))


@dataclass(frozen=True, slots=True)
class UnitRules:
    """How messages are encoded for a provider: what the model can read, which messages are sent as one, and their form.

    `encode_unit` receives messages in which unreadable media are replaced. It returns no bytes to send nothing.
    """

    capabilities: frozenset[str]
    encode_unit: Callable[[Sequence[Message]], bytes]
    can_join: Callable[[Message, Message], bool]


def merge_messages(messages: Sequence[Message]) -> Message:
    """Merge messages into one that contains the parts of all."""
    if len(messages) == 1:
        return messages[0]
    return replace(messages[0], content=tuple(part for message in messages for part in message.content))


class EncodedHistory:
    """A history in encoded form, which is updated by encoding only its new messages.

    A unit is what is sent as one message: a single message, or several that are joined, such as consecutive user
    messages.
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
        """Whether a message contains thinking."""
        return any(self._unit_has_thinking)

    def has_same_start(self, history: Sequence[Message]) -> bool:
        """Whether `history` begins with the same message object as this one."""
        return bool(self._messages) and bool(history) and self._messages[0] is history[0]

    def update(self, history: Sequence[Message]) -> None:
        """Make this the encoded form of `history`, reusing the units that have not changed.

        Raises what `encode_unit` raises; this is then the encoded form of the messages before the failing unit.
        """
        kept = self._count_common_messages(history)
        if 0 < kept < len(history) and self._rules.can_join(history[kept - 1], history[kept]):
            kept -= 1  # the first new message joins the last known unit, which must be encoded again
        kept = self._truncate(kept)
        while kept < len(history):
            kept = self._add_unit(history, kept)

    def last_unit(self) -> list[Message]:
        """Return the messages of the last unit in the form in which they are sent."""
        return self._prepare_unit(self._messages[self._unit_starts[-1] :])

    def _prepare_unit(self, messages: Sequence[Message]) -> list[Message]:
        unit = [replace_unreadable_media(message, self._rules.capabilities) for message in messages]
        if all(map(_is_blank, unit)):
            thinking = (part for part in unit[0].content if isinstance(part, ThinkPart))
            return [replace(unit[0], content=(*thinking, BLANK_MESSAGE_NOTE))]
        return unit

    def _count_common_messages(self, history: Sequence[Message]) -> int:
        """Count the messages at the start that are equal. The usual case, a longer history, is one comparison in C."""
        known = self._messages
        if known == list(history[: len(known)]):
            return len(known)
        pairs = enumerate(zip(known, history, strict=False))
        return next((index for index, (old, new) in pairs if old != new), min(len(known), len(history)))

    def _truncate(self, length: int) -> int:
        """Remove the units that contain messages from `length` on, and return how many messages are left."""
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
    """The encoded histories of one model. A few are cached: requests of subagents and compaction come in between."""

    __slots__ = ("_histories", "_rules")

    def __init__(self, rules: UnitRules) -> None:
        self._rules = rules
        self._histories: deque[EncodedHistory] = deque(maxlen=_HISTORIES)

    def encode(self, history: Sequence[Message]) -> EncodedHistory:
        """Return `history` in encoded form. Only its new messages are encoded."""
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
    """Caches the last result of a function. Values are compared with `!=`, so they must not be mutated."""

    __slots__ = ("_compute", "_last")

    def __init__(self, compute: Callable[[T], R]) -> None:
        self._compute = compute
        self._last: tuple[T, R] | None = None

    def __call__(self, value: T) -> R:
        """Return the result for `value`, computed anew if the value is another than in the last call."""
        if self._last is None or self._last[0] != value:
            self._last = (value, self._compute(value))
        return self._last[1]
