"""Send the stored events of a session as lines, in constant memory (wire spec 3.6, 8.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import anyio.lowlevel

from kimi.application.ports import SessionFiles
from kimi.application.sessions.replay_events import replay
from kimi.domain.events.request import Request
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import encode_notification, encode_request
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.rpc.wire_events import STRICT_EVENT_NAMES, NestedTurnTracker

BATCH_SIZE: Final = 256
"""How many events are read before other tasks may run and a cancel takes effect."""


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
    nested = NestedTurnTracker()
    for number, (name, envelope, request) in enumerate(replay(files), start=1):
        if number % BATCH_SIZE == 0:
            await anyio.lowlevel.checkpoint()
        if (nested.is_nested_boundary(name) or name not in STRICT_EVENT_NAMES) and strict:
            continue
        await outbox.wait_for_capacity()  # for each: a single event may hold megabytes
        outbox.put(frame_message(progress.encode_next(envelope, request)))
