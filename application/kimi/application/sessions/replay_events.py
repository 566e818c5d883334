"""Use-case replay: read the stored events of a session in order, in the current form (wire spec 8.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from pydantic_core import from_json

from kimi.application.codec.envelope import encode_event
from kimi.application.codec.event_json import decode_event
from kimi.application.ports import SessionFiles
from kimi.domain.events.event import EVENT_TYPES, REQUEST_TYPES
from kimi.domain.events.request import Request

logger = logging.getLogger(__name__)

_PREFIXES: dict[bytes, str] = {
    b'{"type":"%b","payload":{' % name.encode(): name
    for name in set(EVENT_TYPES.values()) - {cls.__name__ for cls in REQUEST_TYPES}
}
_MAX_PREFIX_LENGTH = max(len(prefix) for prefix in _PREFIXES)


class ReplayedEvent(NamedTuple):
    """A stored event: its type, its envelope, and the decoded request if it is one."""

    type: str
    envelope: bytes
    request: Request | None = None


def replay(files: SessionFiles) -> Iterator[ReplayedEvent]:
    """Return all events that are recorded at this call, read lazily; events that cannot be decoded are left out.

    Nothing is executed, and requests do not wait for an answer. Events in the form that this program writes are
    yielded as they are; all others are decoded and encoded again.
    """
    return _normalise_events(files.events())


def _normalise_events(envelopes: Iterator[bytes]) -> Iterator[ReplayedEvent]:
    for envelope in envelopes:
        name = _match_event_type(envelope)
        if name is not None:
            yield ReplayedEvent(name, envelope)
        elif (normal := _normalise_event(envelope)) is not None:
            yield normal


def _match_event_type(envelope: bytes) -> str | None:
    """Return the type of an envelope in the exact form of `encode_event`, without blanks; else None."""
    end = envelope.find(b'","payload":{', 9, _MAX_PREFIX_LENGTH + 1)
    return _PREFIXES.get(envelope[: end + 13]) if end > 0 else None


def _normalise_event(envelope: bytes) -> ReplayedEvent | None:
    source = from_json(envelope)
    event = decode_event(source)
    if event is None:
        logger.warning("a recorded message of type %.40r is not understood and is left out", source.get("type"))
        return None
    request = event if isinstance(event, REQUEST_TYPES) else None
    return ReplayedEvent(EVENT_TYPES[type(event)], encode_event(event), request)
