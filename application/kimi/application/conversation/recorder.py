"""Writing the event log: each event once, streamed parts merged (wire spec 8.2, 8.4)."""

from __future__ import annotations

from kimi.application.codec.envelope import encode_event
from kimi.application.ports import Now, SessionFiles
from kimi.domain.content.message import ToolCall, ToolCallPart
from kimi.domain.content.stream import PART_TYPES, PartMerger, StreamPart
from kimi.domain.events.event import ApprovalResponse, Event
from kimi.domain.events.request import ApprovalRequest, HookRequest

_NOT_RECORDED = (ApprovalRequest, ApprovalResponse, HookRequest)


class Recorder:
    """Appends events to the log of a session before the driver sees them.

    What is still being merged is written at the next event that cannot be merged, or by `flush`.
    """

    def __init__(self, files: SessionFiles, now: Now) -> None:
        self._files = files
        self._now = now
        self._merger = PartMerger()
        self._rest: list[str] | None = None
        """Pieces of a call that was written before it was whole; None when there is no such call."""
        self._began = 0.0

    def record(self, event: Event) -> bytes | None:
        """Store `event`; gives its envelope if it had to be encoded. Raises StoreFailed."""
        if isinstance(event, PART_TYPES):
            self._merge(event)
            return None
        self.flush()
        self._rest = None
        if isinstance(event, _NOT_RECORDED):
            return None
        envelope = encode_event(event)
        self._files.append_event(envelope, self._now())
        return envelope

    def flush(self) -> None:
        """Write the part that is still being merged. What comes of it afterwards is written as a piece."""
        self._write_rest()
        for part in self._merger.flush():
            self._files.append_event(encode_event(part), self._began)
            self._rest = [] if isinstance(part, ToolCall) else None

    def _write_rest(self) -> None:
        if self._rest:
            self._files.append_event(encode_event(ToolCallPart("".join(self._rest))), self._began)
            self._rest = []

    def _merge(self, part: StreamPart) -> None:
        if isinstance(part, ToolCallPart) and self._rest is not None:
            self._rest.append(part.arguments_part or "")
            return
        self._write_rest()
        self._rest = None
        if self._merger.empty:
            self._began = self._now()
        for done in self._merger.push(part):
            self._files.append_event(encode_event(done), self._began)
            self._began = self._now()
