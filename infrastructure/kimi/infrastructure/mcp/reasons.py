"""Why an MCP server cannot be used, in words for a person."""

from __future__ import annotations

from typing import Final, cast

from kimi.application.settings import McpServer
from kimi.domain.errors import KimiError
from kimi.infrastructure.mcp.place import secrets_of

MAX_REASON: Final = 500


def reason_of(server: McpServer, error: BaseException) -> str:
    """The error in a sentence without a secret of the server's configuration."""
    error = _innermost(error)
    status = http_status(error)
    text = str(error).strip() or type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, TimeoutError) and server.command is not None:
        text = f"'{server.command}' cannot be started: {error.strerror or text}"
    elif status is not None:
        text = f"It answered with HTTP status {status}."
    elif isinstance(error, OSError) and not isinstance(error, TimeoutError):
        text = f"It cannot be reached: {text}"
    elif text == "Connection closed":
        text = "It ended without an answer."
    elif not isinstance(error, (KimiError, TimeoutError)):
        text = text.removeprefix("Client failed to connect: ")
    for secret in sorted(secrets_of(server), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text[:MAX_REASON]


def http_status(error: BaseException) -> int | None:
    """The HTTP status that the error is about, itself or what it came from."""
    seen: BaseException | None = _innermost(error)
    while seen is not None:
        status = getattr(getattr(seen, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
        seen = seen.__cause__
    return None


def _innermost(error: BaseException) -> BaseException:
    """The first error of the groups that task groups wrap around it, and the one that it wraps."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    cause = error.__cause__
    return cause if isinstance(cause, OSError) else error
