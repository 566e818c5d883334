"""Use-case last-turns: load the last turns of a session that the user resumes (runtime spec 8, R-156)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from pydantic_core import from_json

from kimi.application.codec.event_json import decode_event
from kimi.application.ports import SessionFiles
from kimi.domain.command import parse_command
from kimi.domain.content.message import Message, message_text
from kimi.domain.content.parts import TextPart, join_text
from kimi.domain.events.event import Event, ToolResult, TurnBegin, TurnEnd
from kimi.domain.history.session import ContextRecord
from kimi.domain.tools.tool import ToolReturnValue

DEFAULT_TURN_COUNT = 5
MAX_BYTES = 20 * 1024 * 1024
"""The maximum size of a log in bytes; for a longer log the turns are taken from the context."""

_TURN_BEGIN_PREFIX = b'{"type":"TurnBegin"'
_RESET_COMMANDS = frozenset({"clear", "reset"})
_PROGRAM_MESSAGE = re.compile(r"\s*<(?:system>|system-reminder>|notification\s)")
"""Matches the beginning of messages that the program has added to the context as user messages."""


def load_last_turns(
    files: SessionFiles, context: Sequence[ContextRecord], count: int = DEFAULT_TURN_COUNT
) -> list[Event]:
    """Return the events of the last turns, at most `count`, since the context was last cleared.

    They come from the log, or from the context when the log is too long or does not match the context. Blocks: call
    it in a thread. Raises StoreFailed.
    """
    window = _read_last_envelopes(files.events(), count)
    if window is not None:
        events = [event for envelope in window if (event := decode_event(from_json(envelope))) is not None]
        if _matches_context(events, context):
            return events
    return _events_from_context(context, count)


def _read_last_envelopes(envelopes: Iterable[bytes], count: int) -> list[bytes] | None:
    """Return the envelopes of the last turns; None for a log that is too long."""
    turns: deque[list[bytes]] = deque(maxlen=count)
    size = 0
    for envelope in envelopes:
        size += len(envelope)
        if size > MAX_BYTES:
            return None
        if envelope.startswith(_TURN_BEGIN_PREFIX) or b'"TurnBegin"' in envelope[:40]:
            if _is_context_reset(envelope):
                turns.clear()
            turns.append([])
        if turns:
            turns[-1].append(envelope)
    return [envelope for turn in turns for envelope in turn]


def _is_context_reset(envelope: bytes) -> bool:
    event = decode_event(from_json(envelope))
    command = parse_command(join_text(event.user_input)) if isinstance(event, TurnBegin) else None
    return command is not None and command.name in _RESET_COMMANDS


def _matches_context(events: Sequence[Event], context: Sequence[ContextRecord]) -> bool:
    """Return whether the log belongs to the same conversation as the context; True for a context without prompts."""
    logged = [join_text(event.user_input) for event in events if isinstance(event, TurnBegin)]
    stored = {join_text(one.content) for one in context if isinstance(one, Message) and _is_user_message(one)}
    if not stored:
        return True
    return any(text in stored or parse_command(text) is not None for text in logged)


def _is_user_message(message: Message) -> bool:
    return message.role == "user" and _PROGRAM_MESSAGE.match(message_text(message)) is None


def _events_from_context(context: Sequence[ContextRecord], count: int) -> list[Event]:
    turns: deque[list[Message]] = deque(maxlen=count)
    for record in context:
        if not isinstance(record, Message):
            continue
        if _is_user_message(record):
            turns.append([record])
        elif turns and record.role in ("assistant", "tool"):
            turns[-1].append(record)
    return [event for turn in turns for event in _turn_events(turn)]


def _turn_events(turn: Sequence[Message]) -> Iterator[Event]:
    yield TurnBegin(turn[0].content)
    for message in turn[1:]:
        if message.role == "tool":
            yield ToolResult(message.tool_call_id or "", ToolReturnValue(False, message_text(message, "\n"), ""))
        else:
            yield from (part for part in message.content if isinstance(part, TextPart))
            yield from message.tool_calls
    yield TurnEnd()
