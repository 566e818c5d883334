"""The way out of the ACP driver: lines in order, bounded, with pieces of text joined while they wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import JsonObject
from kimi.interfaces.rpc.jsonrpc import Outbox, one_line

MAX_LINES: Final = 50_000
"""How many lines may wait before producers do, however short they are."""

_CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk"})


@dataclass(slots=True)
class _Chunk:
    """A text chunk that waits, with what was joined to it. Chunks with the same key belong to one message."""

    key: tuple[str, str, str]
    update: JsonObject
    texts: list[str] = field(default_factory=list[str])
    size: int = 0

    def line(self, session_id: str) -> bytes:
        """The update as a line."""
        content = {"type": "text", "text": "".join(self.texts)}
        return update_line(session_id, {**self.update, "content": content})


class Outgoing(Outbox):
    """An outbox for session updates. Text chunks of one message that follow each other and wait become one line."""

    def __init__(
        self, write: Callable[[bytes], Awaitable[None]], high_water: int, on_broken: Callable[[], None]
    ) -> None:
        super().__init__(write, high_water, on_broken)
        self._chunk: _Chunk | None = None

    def put(self, line: bytes) -> None:
        """Queue a line, line end included."""
        self._close_chunk()
        super().put(line)

    def put_update(self, session_id: str, update: JsonObject) -> None:
        """Queue a `session/update`."""
        key = _chunk_key(session_id, update)
        if self.broken:
            return
        if key is None:
            self.put(update_line(session_id, update))
            return
        if self._chunk is None or self._chunk.key != key:
            self._close_chunk()
            self._chunk = _Chunk(key, update)
        text: str = update["content"]["text"]
        self._chunk.texts.append(text)
        self._chunk.size += len(text)
        self._size += len(text)
        self._arrived.set()

    async def room(self) -> None:
        """Wait until less than the high-water mark is queued, in bytes and in lines."""
        while (self._size > self._high_water or len(self._lines) > MAX_LINES) and not self.broken:
            await self._written.wait()

    def _is_empty(self) -> bool:
        return self._chunk is None and super()._is_empty()

    def take(self) -> bytes:
        """Everything that waits, as one piece; it waits no longer."""
        self._close_chunk()
        return super().take()

    def _close_chunk(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            self._size -= chunk.size
            super().put(chunk.line(chunk.key[0]))


def update_line(session_id: str, update: JsonObject) -> bytes:
    """A `session/update` notification as a line."""
    params = encode_json({"sessionId": session_id, "update": update})
    return one_line(b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % params)


def _chunk_key(session_id: str, update: JsonObject) -> tuple[str, str, str] | None:
    """What a plain text chunk can be joined with; None for every other update."""
    kind: Any = update.get("sessionUpdate")
    message_id = update.get("messageId")
    content: Any = update.get("content")
    if kind not in _CHUNKS or not isinstance(message_id, str) or "_meta" in update:
        return None
    if not isinstance(content, dict) or sorted(cast("JsonObject", content)) != ["text", "type"]:
        return None
    return session_id, kind, message_id
