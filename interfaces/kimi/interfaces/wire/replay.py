"""The stored events of a session as lines, in constant memory (wire spec 3.6, 8.5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import anyio.lowlevel

from kimi.application.ports import SessionFiles
from kimi.application.sessions.replay_events import Replayed, replay
from kimi.interfaces.rpc.jsonrpc import Outbox, notification_line, one_line, request_line
from kimi.interfaces.wire.translate import STRICT_NAMES, NestedTurns

BATCH: Final = 256
"""How many events are read before a cancel is looked for."""


@dataclass(slots=True)
class Progress:
    """How many messages a replay has sent."""

    events: int = 0
    requests: int = 0

    def result(self, *, finished: bool) -> dict[str, Any]:
        """The result of the `replay` method."""
        status = "finished" if finished else "cancelled"
        return {"status": status, "events": self.events, "requests": self.requests}


async def send_replay(files: SessionFiles, outbox: Outbox, progress: Progress, *, strict: bool) -> None:
    """Send everything that was recorded until now; waits while the client does not read."""
    items, nested = replay(files), NestedTurns()
    while batch := list(islice(items, BATCH)):
        await outbox.room()
        outbox.put(_lines(batch, progress, nested, strict=strict))
        await anyio.lowlevel.checkpoint()


def _lines(batch: Iterable[Replayed], progress: Progress, nested: NestedTurns, *, strict: bool) -> bytes:
    lines: list[bytes] = []
    for name, envelope, request in batch:
        if (nested.frames(name) or name not in STRICT_NAMES) and strict:
            continue
        if request is None:
            progress.events += 1
            lines.append(one_line(notification_line(b"event", envelope)))
        else:
            progress.requests += 1
            lines.append(one_line(request_line(b"request", request.id, envelope)))
    return b"".join(lines)
