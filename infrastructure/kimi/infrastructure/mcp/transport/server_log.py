"""The log of what an MCP server writes beside the protocol, in a file of its own (tools spec 4.9)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final

MAX_BYTES: Final = 1024 * 1024
"""A longer file is renamed to `NAME.log.1` and replaces the previous one."""

MAX_LINE_BYTES: Final = 8192
_UNSAFE_CHARACTER: Final = re.compile(r"[^A-Za-z0-9._-]")


class ServerLog:
    """A file of at most `MAX_BYTES` and one predecessor, readable only for the user. `secrets` are masked in it.

    What cannot be written is dropped: a full disk must not stop a server.
    """

    def __init__(self, directory: str, server: str, secrets: Collection[str] = ()) -> None:
        self.path = os.path.join(directory, f"{_UNSAFE_CHARACTER.sub('_', server)[:80]}.log")
        self._secrets = [secret.encode() for secret in sorted(secrets, key=len, reverse=True) if secret]
        self._secret_overlap = max(map(len, self._secrets), default=1) - 1
        """In bytes: this much at the end of a piece may be the beginning of a secret."""
        self._buffer = b""
        self._descriptor: int | None = None
        self._size = 0

    def write(self, block: bytes) -> None:
        """Add a piece of output. Whole lines are written, so that a secret is never split."""
        *lines, self._buffer = (self._buffer + block).split(b"\n")
        if len(self._buffer) > MAX_LINE_BYTES + self._secret_overlap:
            whole = self._mask_secrets(self._buffer)
            end = len(whole) - self._secret_overlap
            lines, self._buffer = [*lines, whole[:end]], whole[end:]
        if lines:
            self._write_masked(b"\n".join(lines) + b"\n")

    def close(self) -> None:
        """Write the rest and close the file. More may be written later."""
        if self._buffer:
            self._write_masked(self._buffer + b"\n")
            self._buffer = b""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _mask_secrets(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, b"***")
        return text

    def _write_masked(self, text: bytes) -> None:
        text = self._mask_secrets(text)
        for start in range(0, len(text), MAX_BYTES):
            piece = text[start : start + MAX_BYTES]
            with suppress(OSError):
                self._rotate_if_full(len(piece))
                if self._descriptor is not None:
                    self._size += os.write(self._descriptor, piece)

    def _rotate_if_full(self, size: int) -> None:
        if self._descriptor is None:
            self._open_file()
        if self._size and self._size + size > MAX_BYTES:
            assert self._descriptor is not None
            os.close(self._descriptor)
            self._descriptor = None
            os.replace(self.path, f"{self.path}.1")
            self._open_file()

    def _open_file(self) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._descriptor).st_size
