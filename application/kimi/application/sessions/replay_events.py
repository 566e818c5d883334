"""Use-case replay: read the stored events of a session in order, in the current form (wire spec 8.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeAlias

from pydantic_core import from_json

from kimi.application.codec.envelope import encode_event
from kimi.application.codec.event_json import decode_event
from kimi.application.ports import SessionFiles
from kimi.domain.events.event import EVENT_TYPES, REQUEST_TYPES
from kimi.domain.events.request import Request

logger = logging.getLogger(__name__)

_PREFIX_END = b'","payload":{'
_PREFIXES: dict[bytes, str] = {
    b'{"type":"' + name.encode() + _PREFIX_END: name
    for name in set(EVENT_TYPES.values()) - {cls.__name__ for cls in REQUEST_TYPES}
}
_MAX_PREFIX_LENGTH = max(len(prefix) for prefix in _PREFIXES)


ReplayedEvent: TypeAlias = tuple[str, bytes, Request | None]
"""A stored event: its type, its envelope, and the decoded request if it is one."""


def replay(files: SessionFiles) -> Iterator[ReplayedEvent]:
    """Return all events that are recorded at this call, read lazily; events that cannot be decoded are left out.

    Nothing is executed, and requests do not wait for an answer. Events in the form that this program writes, that of
    `encode_event` without blanks, are yielded as they are; all others are decoded and encoded again.
    """
    return _normalise_events(files.events())


def _normalise_events(envelopes: Iterator[bytes]) -> Iterator[ReplayedEvent]:
    find_name, limit = _PREFIXES.get, _MAX_PREFIX_LENGTH + 1
    for envelope in envelopes:
        name = find_name(envelope[: envelope.find(_PREFIX_END, 9, limit) + len(_PREFIX_END)])
        if name is not None:
            yield name, envelope, None
        elif (normal := _normalise_event(envelope)) is not None:
            yield normal


def _normalise_event(envelope: bytes) -> ReplayedEvent | None:
    source = from_json(envelope)
    event = decode_event(source)
    if event is None:
        logger.warning("a recorded message of type %.40r is not understood and is left out", source.get("type"))
        return None
    request = event if isinstance(event, REQUEST_TYPES) else None
    return EVENT_TYPES[type(event)], encode_event(event), request
