"""The limits of one message of an MCP server, checked before it is parsed (tools spec 4.9)."""

from __future__ import annotations

import re
from typing import Final

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""The default limit; `mcp.client.max_message_bytes` sets another one."""

MAX_VALUES: Final = 200_000
"""The limit of JSON values and keys. Parsed values take up to a hundred times the memory of their text."""

MAX_DEPTH: Final = 500

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{\]}]|[^\s\[\]{},:"]++', re.DOTALL)
"""A string, ended or not, a bracket, or any other value. Possessive, so that the time is linear."""

_OPENING: Final = (b"[", b"{")
_CLOSING: Final = (b"]", b"}")


class MessageRefused(Exception):
    """A message exceeds a limit; the text is a sentence for the user."""


class MessageGuard:
    """The limits for the messages of one connection. `refusal` says why it was given up, if it was."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.refusal: str | None = None

    def check_size(self, size: int) -> None:
        """Check the bytes of a message that have arrived. Raises MessageRefused."""
        if size > self.max_bytes:
            raise self.refuse(f"It sent a message of more than {self.max_bytes / 1024 / 1024:g} MiB.")

    def check_content(self, text: bytes | bytearray) -> None:
        """Check a whole message before it is parsed. Raises MessageRefused. Takes 0.1 s at most."""
        self.check_size(len(text))
        has_few_values = len(text) <= MAX_VALUES  # a value has a byte at least, and one that separates it
        if has_few_values and text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
            return
        values = depth = 0
        for token in _TOKEN.finditer(text):
            found = token.group()
            if found in _CLOSING:
                depth -= 1
                continue
            values += 1
            depth += found in _OPENING
            if depth > MAX_DEPTH:
                raise self.refuse("It sent a message that is nested too deeply.")
            if values > MAX_VALUES:
                raise self.refuse(f"It sent a message of more than {MAX_VALUES} values.")

    def refuse(self, reason: str) -> MessageRefused:
        """Remember why the connection is given up, and return the error that says so."""
        self.refusal = reason
        return MessageRefused(reason)
