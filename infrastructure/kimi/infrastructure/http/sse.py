"""Server-sent events out of blocks of bytes, however the stream was cut (runtime spec 3.2)."""

from __future__ import annotations

DONE = b"[DONE]"
"""The payload that ends a chat-completions stream."""

_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Collects the `data` payloads of a stream.

    Works on bytes, so a character that is cut in two by a block is whole again in its payload. Comments and
    fields other than `data` are skipped, and so is the byte order mark that some servers begin with. Time is linear in
    the number of bytes, also for very long lines.
    """

    __slots__ = ("_begun", "_data", "_tail")

    def __init__(self) -> None:
        self._begun = False
        self._tail: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, block: bytes) -> list[bytes]:
        """Take the next block; give the payloads of the events that it completes, in order."""
        lines = block.split(b"\n")
        if self._tail:
            self._tail.append(lines[0])
            if len(lines) == 1:
                return []
            lines[0] = b"".join(self._tail)
            self._tail.clear()
        if lines[-1]:
            self._tail.append(lines[-1])
        del lines[-1]
        return self._parse_lines(lines)

    def flush(self) -> list[bytes]:
        """The end of the stream: an event that lacks its closing blank line counts as well."""
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
    """The data lines of one event as one payload, carriage returns of CRLF line ends removed."""
    if len(lines) == 1:
        return lines[0].removesuffix(b"\r")
    return b"\n".join(line.removesuffix(b"\r") for line in lines)
