"""The outbox of the ACP driver: a bounded queue of lines that joins text chunks while they wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import JsonObject
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.outbox import Outbox

MAX_QUEUED_LINES: Final = 50_000
"""How many lines may be queued before producers must wait, however short the lines are."""

MAX_CHUNK_CHARS: Final = 64 * 1024
"""How many characters are joined to one line; pieces that wait to be joined take ten times the memory of their text."""

_CHUNK_KINDS = frozenset({"agent_message_chunk", "agent_thought_chunk"})


@dataclass(slots=True)
class _PendingChunk:
    """A queued text chunk with the texts joined to it. Chunks with the same key belong to one message."""

    key: tuple[str, str, str]
    update: JsonObject
    texts: list[str] = field(default_factory=list[str])
    size: int = 0

    def encode_line(self, session_id: str) -> bytes:
        """Return the joined chunk as a line."""
        content = {"type": "text", "text": "".join(self.texts)}
        return encode_update(session_id, {**self.update, "content": content})


class UpdateOutbox(Outbox):
    """An outbox for session updates. Consecutive text chunks of one message become one line while they are queued."""

    def __init__(
        self, write: Callable[[bytes], Awaitable[None]], high_water: int, on_broken: Callable[[], None]
    ) -> None:
        super().__init__(write, high_water, on_broken)
        self._pending_chunk: _PendingChunk | None = None

    def put(self, line: bytes) -> None:
        """Queue a line, line end included."""
        self._queue_pending_chunk()  # first: it was put before this line
        super().put(line)

    def put_update(self, session_id: str, update: JsonObject) -> None:
        """Queue a `session/update`."""
        key = _find_merge_key(session_id, update)
        if self.is_broken:
            return
        if key is None:
            self.put(encode_update(session_id, update))
            return
        if self._pending_chunk is None or self._pending_chunk.key != key or self._pending_chunk.size > MAX_CHUNK_CHARS:
            self._queue_pending_chunk()
            self._pending_chunk = _PendingChunk(key, update)
        text: str = update["content"]["text"]
        self._pending_chunk.texts.append(text)
        self._pending_chunk.size += len(text)
        self._size += len(text)
        self._arrived.set()

    async def wait_for_capacity(self) -> None:
        """Wait until no more than the high-water mark is queued, in bytes and in lines."""
        while (self._size > self._high_water or len(self._lines) > MAX_QUEUED_LINES) and not self.is_broken:
            await self._written.wait()

    def _is_empty(self) -> bool:
        return self._pending_chunk is None and super()._is_empty()

    def take_piece(self) -> bytes:
        """Remove the next piece of what is queued, and return it."""
        self._queue_pending_chunk()
        return super().take_piece()

    def _queue_pending_chunk(self) -> None:
        chunk, self._pending_chunk = self._pending_chunk, None
        if chunk is not None:
            self._size -= chunk.size
            super().put(chunk.encode_line(chunk.key[0]))


def encode_update(session_id: str, update: JsonObject) -> bytes:
    """Return a `session/update` notification as a line."""
    params = encode_json({"sessionId": session_id, "update": update})
    return frame_message(b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % params)


def _find_merge_key(session_id: str, update: JsonObject) -> tuple[str, str, str] | None:
    """Return the key that plain text chunks of one message share; None for every other update."""
    kind: Any = update.get("sessionUpdate")
    message_id = update.get("messageId")
    content: Any = update.get("content")
    if kind not in _CHUNK_KINDS or not isinstance(message_id, str) or "_meta" in update:
        return None
    if not isinstance(content, dict) or sorted(cast("JsonObject", content)) != ["text", "type"]:
        return None
    return session_id, kind, message_id
