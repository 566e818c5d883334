"""The newest messages of a session, each with its position, from which clients continue (wire spec 13.4)."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of messages a session keeps for clients that are slow or come back."""

_ENTRY_BYTES: Final = 200
"""About what an entry costs beside its messages, so that a flood of tiny messages is bounded too."""


class LogEntry(NamedTuple):
    """A message for all clients of a session; `with_usage` is its form for those that want totals of tokens."""

    message: bytes
    with_usage: bytes | None


class EventLog:
    """The messages that all clients of a session get, in one order. Old ones are dropped above `max_bytes`.

    Positions are numbers from 1. For clients they are texts that also name the log by `name`, so that the position of
    another log, of another process or of the session before it was closed, is never taken for one of this.
    """

    def __init__(self, name: str, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._name = name.encode()
        self._max_bytes = max_bytes
        self._entries: deque[LogEntry] = deque()
        self._size = 0
        self.first = 1
        """The position of the oldest message that is kept, or of the next one if none is."""

    @property
    def next(self) -> int:
        """The position that the next message will have."""
        return self.first + len(self._entries)

    def append(self, message: bytes, with_usage: bytes | None = None) -> int:
        """Add a message, which is the JSON of an object; return its position."""
        position = self.next
        member = b',"position":"%b"}' % self.format_position(position)
        entry = LogEntry(message[:-1] + member, None if with_usage is None else with_usage[:-1] + member)
        self._entries.append(entry)
        self._size += _weigh(entry)
        while self._size > self._max_bytes and len(self._entries) > 1:
            self._size -= _weigh(self._entries.popleft())
            self.first += 1
        return position

    def get(self, position: int) -> LogEntry:
        """Return the message at a position from `first` to before `next`."""
        return self._entries[position - self.first]

    def format_position(self, position: int) -> bytes:
        """Return a position as clients see it."""
        return b"%b.%d" % (self._name, position)

    def find_next(self, after: str) -> int | None:
        """Return the position of the message after the one that a client names.

        Returns None if it is no position of this log, or if messages after it are no longer kept.
        """
        name, _, number = after.partition(".")
        if name.encode("utf-8", "replace") != self._name or not (number.isascii() and number.isdigit()):
            return None
        if len(number) > 18:
            return None
        position = int(number) + 1
        return position if self.first <= position <= self.next else None


def _weigh(entry: LogEntry) -> int:
    return _ENTRY_BYTES + len(entry.message) + len(entry.with_usage or b"")
