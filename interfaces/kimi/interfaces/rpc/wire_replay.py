"""Send the stored events of a session as lines, in constant memory (wire spec 3.6, 8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio.lowlevel

from kimi.application.ports import SessionFiles
from kimi.application.sessions.replay_events import ReplayedEvent, replay
from kimi.domain.events.request import Request
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import encode_notification, encode_request
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.rpc.wire_events import STRICT_EVENT_NAMES, NestedTurnTracker

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

    def build_result(self, *, finished: bool) -> dict[str, Any]:
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
    """Yield lines in blocks, each with its number of events and of requests; a block may be empty."""
    nested = NestedTurnTracker()
    messages: list[bytes] = []
    size = requests = 0
    for name, envelope, request in recorded:
        if not strict or (not nested.is_nested_boundary(name) and name in STRICT_EVENT_NAMES):
            if request is None:
                messages.append(encode_notification(b"event", envelope))
            else:
                messages.append(encode_request(b"request", request.id, envelope))
                requests += 1
        size += len(envelope)
        if size >= BLOCK_BYTES:
            yield _frame_messages(messages), len(messages) - requests, requests
            messages.clear()
            size = requests = 0
    yield _frame_messages(messages), len(messages) - requests, requests


def _frame_messages(messages: Sequence[bytes]) -> bytes:
    return frame_message(b"\n".join(messages)) if messages else b""
