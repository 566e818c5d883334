"""Send the stored events of a session as lines, in constant memory (wire spec 3.6, 8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from kimi.application.ports import SessionFiles
from kimi.application.sessions.replay_events import ReplayedEvent, replay
from kimi.domain.events.request import Request
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import encode_notification, encode_request
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.rpc.wire_events import STRICT_EVENT_NAMES, NestedTurnTracker

if TYPE_CHECKING:
    from kimi.interfaces.rpc.wire_shapes import ReplayResult

BLOCK_BYTES: Final = 64 * 1024
"""How many bytes are read before other tasks may run and a cancel takes effect, unless one event alone has more."""


@dataclass(slots=True)
class ReplayProgress:
    """How many messages a replay has sent."""

    events: int = 0
    requests: int = 0

    def encode_next(self, envelope: bytes, request: Request | None) -> bytes:
        """Count a stored event, and return the message for it."""
        if request is None:
            self.events += 1
            return encode_notification(b"event", envelope)
        self.requests += 1
        return encode_request(b"request", request.id, envelope)

    def build_result(self, *, finished: bool) -> ReplayResult:
        """Return the result of the `replay` method."""
        status = "finished" if finished else "cancelled"
        return {"status": status, "events": self.events, "requests": self.requests}


async def send_replay(files: SessionFiles, outbox: Outbox, progress: ReplayProgress, *, strict: bool) -> None:
    """Send everything that was recorded until now. Waits while the client does not read."""
    for block, events, requests in _build_blocks(replay(files), strict=strict):
        await anyio.lowlevel.checkpoint()
        await outbox.wait_for_capacity()
        progress.events += events
        progress.requests += requests
        outbox.put(block)


def _build_blocks(recorded: Iterable[ReplayedEvent], *, strict: bool) -> Iterator[tuple[bytes, int, int]]:
    """Yield blocks of lines, each with its number of events and of requests."""
    nested = NestedTurnTracker()
    envelopes: list[bytes] = []
    size = 0
    for name, envelope, request in recorded:
        size += len(envelope)
        is_hidden = strict and (nested.is_nested_boundary(name) or name not in STRICT_EVENT_NAMES)
        if request is None and not is_hidden:
            envelopes.append(envelope)
        if size >= BLOCK_BYTES or request is not None:
            yield _frame_events(envelopes), len(envelopes), 0
            envelopes.clear()
            size = 0
        if request is not None and not is_hidden:
            yield frame_message(encode_request(b"request", request.id, envelope)), 0, 1
    yield _frame_events(envelopes), len(envelopes), 0


def _frame_events(envelopes: Sequence[bytes]) -> bytes:
    """Return a line for each event, all joined at once."""
    start, end = encode_notification(b"event", b"\0").split(b"\0")
    return frame_message(start + (end + b"\n" + start).join(envelopes) + end) if envelopes else b""
