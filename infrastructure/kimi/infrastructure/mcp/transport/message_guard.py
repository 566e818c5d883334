"""The limits of one message of an MCP server, checked before it is parsed (tools spec 4.9)."""

from __future__ import annotations

from typing import Final

from kimi.infrastructure.http.json_limits import find_json_excess

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""The default limit; `mcp.client.max_message_bytes` sets another one."""


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
        """Check a whole message before it is parsed. Raises MessageRefused."""
        self.check_size(len(text))
        if (excess := find_json_excess(text)) is not None:
            raise self.refuse(f"It sent a message {excess}.")

    def refuse(self, reason: str) -> MessageRefused:
        """Remember why the connection is given up, and return the error that says so."""
        self.refusal = reason
        return MessageRefused(reason)
