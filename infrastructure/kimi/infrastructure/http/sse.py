"""A parser of server-sent events that arrive in arbitrary blocks of bytes (runtime spec 3.2)."""

from __future__ import annotations

DONE = b"[DONE]"
"""The payload that ends a stream of chat completions."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The limit of one event. What a model says at once has some hundred bytes; a whole picture has a few mebibytes."""

_BOM = b"\xef\xbb\xbf"


MAX_EVENT_LINES = 100_000
"""The limit of the lines of one event: each of them costs more than its bytes."""


class EventTooLarge(Exception):
    """An event, or a line of a stream, exceeds a limit; the text says which, as `more than 16 MiB`."""


class SseParser:
    """Collects the `data` payloads of a stream.

    The parser works on bytes, so a character that is split between two blocks is complete in its payload. It skips
    comments, fields other than `data`, and the byte order mark that some servers send first. Its time is linear in the
    number of bytes, even for very long lines. What it holds of an event has at most `max_bytes`, beside one block.
    """

    __slots__ = ("_begun", "_data", "_held", "_max_bytes", "_tail")

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._begun = False
        self._max_bytes = max_bytes
        self._held = 0
        """The bytes that have arrived since the last event, without the current block."""
        self._tail: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, block: bytes) -> list[bytes]:
        """Parse the next block and return the payloads of the events that it completes, in order.

        Raises:
            EventTooLarge: an event that is not complete has more than `max_bytes`, or `MAX_EVENT_LINES`.
        """
        lines = block.split(b"\n")
        if self._tail:
            self._tail.append(lines[0])
            if len(lines) == 1:
                self._hold(len(block))
                return []
            lines[0] = b"".join(self._tail)
            self._tail.clear()
        if lines[-1]:
            self._tail.append(lines[-1])
        del lines[-1]
        events = self._parse_lines(lines)
        if not self._data:  # between two events: only a line that is not complete is held
            self._held = 0
            self._hold(sum(map(len, self._tail)))
        else:
            self._hold(len(block))
        return events

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._max_bytes:
            raise EventTooLarge(f"more than {self._max_bytes / 1024 / 1024:g} MiB")
        if len(self._data) > MAX_EVENT_LINES:
            raise EventTooLarge(f"more than {MAX_EVENT_LINES} lines")

    def flush(self) -> list[bytes]:
        """End the stream and return the last event's payload, even if its closing blank line is missing."""
        last = b"".join(self._tail)
        self._tail.clear()
        return self._parse_lines([last, b""])

    def _parse_lines(self, lines: list[bytes]) -> list[bytes]:
        data = self._data
        events: list[bytes] = []
        if lines and not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif not line or line == b"\r":
                if data:
                    events.append(_join_data_lines(data))
                    data.clear()
            elif line[:5] == b"data:":
                data.append(line[5:])
            elif line.rstrip(b"\r") == b"data":
                data.append(b"")
        return events


def _join_data_lines(lines: list[bytes]) -> bytes:
    """Join the data lines of one event into one payload, without the carriage returns of CRLF line ends."""
    if len(lines) == 1:
        return lines[0].removesuffix(b"\r")
    return b"\n".join(line.removesuffix(b"\r") for line in lines)
