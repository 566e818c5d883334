"""Parses the messages of MCP servers, for every transport of ours. Loads the library's types."""

from __future__ import annotations

import json
import re
from typing import Final

import anyio.to_thread
import mcp_types

from kimi.infrastructure.mcp.transport.message_guard import MessageGuard

THREAD_PARSE_BYTES: Final = 256 * 1024
"""Longer messages are parsed in a thread."""


_OBJECT = re.compile(rb"\s*\{")


async def parse_message(text: bytes | bytearray, guard: MessageGuard) -> mcp_types.JSONRPCMessage:
    """Parse a message. Raises MessageRefused: it exceeds a limit; ValueError: it is not a message."""
    if len(text) > THREAD_PARSE_BYTES:
        return await anyio.to_thread.run_sync(_parse_message, text, guard)
    return _parse_message(text, guard)


def _parse_message(text: bytes | bytearray, guard: MessageGuard) -> mcp_types.JSONRPCMessage:
    guard.check_size(len(text))
    if _OBJECT.match(text) is None:
        raise ValueError("it is no object")
    guard.check_content(text)
    adapter = mcp_types.jsonrpc_message_adapter
    try:
        return adapter.validate_json(text, by_name=False)
    except ValueError:
        try:  # the faster parser gives up on deep nesting
            return adapter.validate_python(json.loads(text), by_name=False)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
