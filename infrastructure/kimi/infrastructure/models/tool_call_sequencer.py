"""Puts streamed tool calls in order, so that the pieces of two calls never interleave (R-78).

Providers address the pieces of a call by an index and may send several calls at the same time. The first call that is
not complete is passed on as it arrives; everything after it is queued.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import ContentPart
from kimi.domain.content.stream import StreamPart
from kimi.infrastructure.models.answer_errors import require_text

_STRUCTURE = re.compile(r'["\\{}\[\]]')


class JsonEndDetector:
    """Detects the end of a JSON object or array in text that arrives in pieces. Its time is linear in the text."""

    __slots__ = ("_depth", "_escaped", "_in_string", "has_ended")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = -1
        self.has_ended = False

    def feed(self, text: str) -> None:
        """Scan the next piece of the text."""
        for match in _STRUCTURE.finditer(text):
            if match.start() == self._escaped:
                self._escaped = -1
            elif self._in_string:
                self._scan_in_string(match.group(), match.start())
            else:
                self._scan_outside_string(match.group())
        self._escaped = 0 if self._escaped == len(text) else -1

    def _scan_in_string(self, mark: str, position: int) -> None:
        if mark == "\\":
            self._escaped = position + 1
        elif mark == '"':
            self._in_string = False

    def _scan_outside_string(self, mark: str) -> None:
        if mark == '"':
            self._in_string = True
        elif mark in "{[":
            self._depth += 1
        elif mark in "}]":
            self._depth -= 1
            self.has_ended = self.has_ended or self._depth <= 0


class _StreamedCall:
    """A call that has started, its pieces that are not passed on yet, and the state of its arguments.

    A piece that arrives after the arguments have ended and the queue has gone on is dropped.
    """

    __slots__ = ("call_id", "end_detector", "is_started", "name", "pending_pieces", "provider_id", "unscanned_pieces")

    def __init__(self, call_id: str, provider_id: str, name: str) -> None:
        self.call_id = call_id
        self.provider_id = provider_id
        self.name = name
        self.pending_pieces: list[str] = []
        self.unscanned_pieces: list[str] = []
        self.end_detector = JsonEndDetector()
        self.is_started = False

    def add(self, piece: str) -> None:
        self.pending_pieces.append(piece)
        self.unscanned_pieces.append(piece)

    def is_complete(self) -> bool:
        """Whether the arguments have ended. Scans only the pieces that arrived since the last call."""
        self.end_detector.feed("".join(self.unscanned_pieces))
        self.unscanned_pieces.clear()
        return self.end_detector.has_ended

    def accepts_piece(self, name: str, piece: str | None) -> bool:
        """Whether `piece`, sent with `name`, belongs to this call. Some providers repeat the name with every piece."""
        return name == self.name and not (piece and piece.strip() and self.is_complete())

    def take_parts(self) -> list[StreamPart]:
        """Return the parts that can be passed on now."""
        text = "".join(self.pending_pieces) if self.pending_pieces else None
        self.pending_pieces.clear()
        if not self.is_started:
            self.is_started = True
            return [ToolCall(self.call_id, Function(self.name, text))]
        return [ToolCallPart(text)] if text else []


class ToolCallSequencer:
    """Takes the pieces of tool calls and other parts as they arrive and returns them without interleaving."""

    __slots__ = ("_by_index", "_ids", "_latest", "_new_id", "_queue")

    def __init__(self, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._queue: deque[_StreamedCall | ContentPart] = deque()
        self._by_index: dict[int, _StreamedCall] = {}
        self._latest: _StreamedCall | None = None
        self._ids: set[str] = set()
        self._new_id = new_id

    @property
    def has_calls(self) -> bool:
        """Whether a call has started."""
        return self._latest is not None

    def add_content(self, part: ContentPart) -> list[StreamPart]:
        """Add a part that is not a tool call. It is queued while a call before it is incomplete."""
        if not self._queue:
            return [part]
        self._queue.append(part)
        return self._take_ready_parts()

    def add_delta(self, delta: Mapping[str, Any]) -> list[StreamPart]:
        """Add one entry of `delta.tool_calls`. Raises TypeError when the name is not text."""
        function: Mapping[str, Any] = delta.get("function") or {}
        piece = function.get("arguments")
        if piece is not None and not isinstance(piece, str):
            piece = json.dumps(piece)
        name = require_text(function.get("name") or "")
        call = self._find_or_start_call(delta.get("index"), str(delta.get("id") or ""), name, piece)
        if call is None:
            return []
        if piece is not None:
            call.add(piece)
        return self._take_ready_parts()

    def close_call(self, index: int) -> list[StreamPart]:
        """Mark the arguments of the call at `index` as complete. An unknown index is ignored."""
        call = self._by_index.pop(index, None)
        if call is None:
            return []
        call.end_detector.has_ended = True
        return self._take_ready_parts()

    def flush(self) -> list[StreamPart]:
        """End the stream and return everything that is queued, in order."""
        parts: list[StreamPart] = []
        while self._queue:
            first = self._queue.popleft()
            parts += first.take_parts() if isinstance(first, _StreamedCall) else [first]
        return parts

    def _find_or_start_call(self, index: Any, provider_id: str, name: str, piece: str | None) -> _StreamedCall | None:
        """Return the call that a piece belongs to, started if it is new, or None for a piece without a call."""
        known = self._by_index.get(index) if isinstance(index, int) else self._latest
        if not name:
            return known
        repeated = provider_id == known.provider_id if known and provider_id else isinstance(index, int)
        if known is not None and repeated and known.accepts_piece(name, piece):
            return known
        call = self._latest = _StreamedCall(self._make_unique_id(provider_id), provider_id, name)
        self._queue.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _make_unique_id(self, provider_id: str) -> str:
        """Return an id that no other call of this answer has."""
        call_id = provider_id if provider_id and provider_id not in self._ids else self._new_id()
        self._ids.add(call_id)
        return call_id

    def _take_ready_parts(self) -> list[StreamPart]:
        """Return the new parts of the first call and, once it is complete, what is queued after it."""
        parts: list[StreamPart] = []
        while self._queue:
            first = self._queue[0]
            if isinstance(first, _StreamedCall):
                parts += first.take_parts()
                if len(self._queue) == 1 or not first.is_complete():
                    break
            else:
                parts.append(first)
            self._queue.popleft()
        return parts
