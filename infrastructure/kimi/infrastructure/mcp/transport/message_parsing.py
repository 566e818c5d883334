"""Parses the messages of MCP servers, for every transport. Loads the library's types."""

from __future__ import annotations

import json
from typing import Final

import anyio.to_thread
import mcp_types

MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024

THREAD_PARSE_BYTES: Final = 256 * 1024
"""Longer messages are parsed in a thread."""


async def parse_message(text: bytes) -> mcp_types.JSONRPCMessage:
    """Parse a message. Raises ValueError: it is not a message, or is nested too deeply."""
    try:
        if len(text) > THREAD_PARSE_BYTES:
            return await anyio.to_thread.run_sync(_parse_message, text)
        return _parse_message(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _parse_message(text: bytes) -> mcp_types.JSONRPCMessage:
    """Parse a message. Raises ValueError: it is not a message; RecursionError: it is nested too deeply."""
    adapter = mcp_types.jsonrpc_message_adapter
    try:
        return adapter.validate_json(text, by_name=False)
    except ValueError:
        if not text.lstrip().startswith(b"{"):
            raise
        return adapter.validate_python(json.loads(text), by_name=False)  # the faster parser gives up on deep nesting
