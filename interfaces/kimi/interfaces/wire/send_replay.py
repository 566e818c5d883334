"""Send the stored events of a session as lines, in constant memory (wire spec 3.6, 8.5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import anyio.lowlevel

from kimi.application.ports import SessionFiles
from kimi.application.sessions.replay_events import ReplayedEvent, replay
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import encode_notification, encode_request
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.wire.event_encoder import STRICT_EVENT_NAMES, NestedTurnTracker

BATCH_SIZE: Final = 256
"""How many events are read between two checks for a cancel."""


@dataclass(slots=True)
class ReplayProgress:
    """How many messages a replay has sent."""

    events: int = 0
    requests: int = 0

    def build_result(self, *, finished: bool) -> dict[str, Any]:
        """Return the result of the `replay` method."""
        status = "finished" if finished else "cancelled"
        return {"status": status, "events": self.events, "requests": self.requests}


async def send_replay(files: SessionFiles, outbox: Outbox, progress: ReplayProgress, *, strict: bool) -> None:
    """Send everything that was recorded until now. Waits while the client does not read."""
    items, nested = replay(files), NestedTurnTracker()
    while batch := list(islice(items, BATCH_SIZE)):
        await outbox.wait_for_capacity()
        outbox.put(_encode_batch(batch, progress, nested, strict=strict))
        await anyio.lowlevel.checkpoint()


def _encode_batch(
    batch: Iterable[ReplayedEvent], progress: ReplayProgress, nested: NestedTurnTracker, *, strict: bool
) -> bytes:
    lines: list[bytes] = []
    for name, envelope, request in batch:
        if (nested.is_nested_boundary(name) or name not in STRICT_EVENT_NAMES) and strict:
            continue
        if request is None:
            progress.events += 1
            lines.append(frame_message(encode_notification(b"event", envelope)))
        else:
            progress.requests += 1
            lines.append(frame_message(encode_request(b"request", request.id, envelope)))
    return b"".join(lines)
