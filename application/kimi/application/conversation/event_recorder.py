"""Recording of events in the event log, with streamed parts merged (wire spec 8.2, 8.4)."""

from __future__ import annotations

from collections import deque

from kimi.application.codec.envelope import encode_event
from kimi.application.ports import Now, SessionFiles
from kimi.domain.content.message import ToolCall, ToolCallPart
from kimi.domain.content.stream import PART_TYPES, PartMerger, StreamPart
from kimi.domain.errors import StoreFailed
from kimi.domain.events.event import INTERNAL_TYPES, ApprovalResponse, Event
from kimi.domain.events.request import ApprovalRequest, HookRequest

_UNRECORDED_TYPES = (ApprovalRequest, ApprovalResponse, HookRequest)


class EventRecorder:
    """Appends events to the event log of a session before the driver sees them.

    Streamed parts are merged; the merged part is written at the next event that cannot be merged, or by `flush`.
    """

    def __init__(self, files: SessionFiles, now: Now) -> None:
        self._files = files
        self._now = now
        self._merger = PartMerger()
        self._late_pieces: list[str] | None = None
        """Argument pieces of a call that was written before it was complete; None when there is no such call."""
        self._part_started_at = 0.0
        self._unwritten: deque[tuple[bytes, float]] = deque()
        """Merged parts, with their times, that the disk has not taken."""

    def record(self, event: Event) -> bytes | None:
        """Store `event`; return its envelope if it had to be encoded. Raises StoreFailed."""
        if isinstance(event, PART_TYPES):
            self._merge(event)
            return None
        if isinstance(event, INTERNAL_TYPES):
            return None  # without a flush: a call may start while the next one still streams, and that is one record
        self.flush()
        self._late_pieces = None
        if isinstance(event, _UNRECORDED_TYPES):
            return None
        envelope = encode_event(event)
        self._files.append_event(envelope, self._now())
        return envelope

    def flush(self) -> None:
        """Write the part that is still being merged. Pieces that arrive for it later are written separately."""
        self._write_late_pieces()
        for part in self._merger.flush():
            self._late_pieces = [] if isinstance(part, ToolCall) else None
            self._unwritten.append((encode_event(part), self._part_started_at))
        self._write_unwritten()

    def _write_late_pieces(self) -> None:
        if self._late_pieces:
            pieces, self._late_pieces = self._late_pieces, []
            self._unwritten.append((encode_event(ToolCallPart("".join(pieces))), self._part_started_at))
        self._write_unwritten()

    def _write_unwritten(self) -> None:
        # The driver has seen the pieces of these: one that cannot be written now is written before the next event.
        while self._unwritten:
            self._files.append_event(*self._unwritten[0])
            self._unwritten.popleft()

    def _merge(self, part: StreamPart) -> None:
        if isinstance(part, ToolCallPart) and self._late_pieces is not None:
            self._late_pieces.append(part.arguments_part or "")
            return
        self._write_late_pieces()
        self._late_pieces = None
        if self._merger.is_empty:
            self._part_started_at = self._now()
        for done in self._merger.push(part):
            self._unwritten.append((encode_event(done), self._part_started_at))
            self._part_started_at = self._now()
        try:
            self._write_unwritten()
        except StoreFailed:
            self._merger.flush()  # all that is left in it is this part, which the driver will not see
            raise
