"""Formats for the user why an MCP server cannot be used."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

from kimi.application.settings.settings import McpServer
from kimi.domain.tools.mcp_tool_names import show_hidden

MAX_REASON_CHARS: Final = 500
_KNOWN_MESSAGES: Final = {
    "Connection closed": "It ended without an answer.",
    "All connection attempts failed": "It cannot be reached.",
}


def format_failure_reason(server: McpServer, error: BaseException, secrets: Collection[str]) -> str:
    """Format the error as a sentence of `MAX_REASON_CHARS` characters, with `secrets` masked and nothing hidden."""
    text = _describe_error(server, _find_root_error(error))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return show_hidden(text[:MAX_REASON_CHARS], "\n")


def _describe_error(server: McpServer, error: BaseException) -> str:
    text = str(error).strip().removeprefix("Client failed to connect: ") or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None and server.command is not None:
        return f"'{server.command}' cannot be started: {error.strerror or text}"
    return _KNOWN_MESSAGES.get(text, text)


def _find_root_error(error: BaseException) -> BaseException:
    """Return the first error in the groups that task groups raise, or the OSError that it wraps."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    cause = error.__cause__
    return cause if isinstance(cause, OSError) and cause.errno is not None else error
