"""Bodies of the HTTP responses of an MCP server, checked as they are read. Loads the library's HTTP client.

The library reads whole bodies without a limit, and parses every event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import anyio
import anyio.to_thread
import httpx2

from kimi.infrastructure.http.sse import EventTooLarge, SseParser
from kimi.infrastructure.mcp.transport.message_guard import MessageGuard, MessageRefused

BODY_S: Final = 300.0
"""Seconds in which a body that is no stream of events must be complete."""

THREAD_CHECK_BYTES: Final = 256 * 1024
"""Longer messages are checked and parsed in a thread."""


async def guard_response(response: httpx2.Response, guard: MessageGuard) -> None:
    """Replace the body of a response that was just opened by one that `guard` checks after decompression."""
    raw = httpx2.Response(
        response.status_code, headers=response.headers, stream=response.stream, request=response.request
    )
    response.stream = _GuardedBody(raw, guard, _is_event_stream(response))
    response.headers.pop("content-encoding", None)


def _is_event_stream(response: httpx2.Response) -> bool:
    """Return whether this is a stream of events that was asked for; any other body is read as a whole."""
    return (
        response.is_success
        and response.headers.get("content-type", "").lower().startswith("text/event-stream")
        and "text/event-stream" in response.request.headers.get("accept", "")
    )


class _GuardedBody(httpx2.AsyncByteStream):
    """The decompressed body of `raw`. It raises httpx2.StreamError when `guard` refuses it."""

    def __init__(self, raw: httpx2.Response, guard: MessageGuard, is_event_stream: bool) -> None:
        self._raw = raw
        self._guard = guard
        self._is_event_stream = is_event_stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            if not self._is_event_stream:
                yield await self._read_whole()
                return
            parser = SseParser(self._guard.max_bytes)
            ends_with_return = False
            async with aclosing(self._raw.aiter_bytes()) as blocks:
                async for block in blocks:
                    # The library takes a carriage return for the end of a line, too.
                    lines = _unify_line_ends(block.removeprefix(b"\n") if ends_with_return else block)
                    ends_with_return = block.endswith(b"\r") or (ends_with_return and not block)
                    for event in _parse_events(parser, lines, self._guard):
                        await check_content(event, self._guard)
                    yield block
        except MessageRefused as refusal:
            raise httpx2.StreamError(str(refusal)) from refusal

    async def aclose(self) -> None:
        await self._raw.aclose()

    async def _read_whole(self) -> bytes:
        blocks: list[bytes] = []
        size = 0
        with anyio.move_on_after(BODY_S) as scope:
            async for block in self._raw.aiter_bytes():
                size += len(block)
                self._guard.check_size(size)
                blocks.append(block)
        if scope.cancelled_caught:
            raise self._guard.refuse(f"It took more than {BODY_S:g} s to send a message.")
        body = b"".join(blocks)
        blocks.clear()
        await check_content(body, self._guard)
        return body


def _unify_line_ends(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block


def _parse_events(parser: SseParser, block: bytes, guard: MessageGuard) -> list[bytes]:
    """Return the data of the events that `block` completes. Raises MessageRefused if one is too large."""
    try:
        return parser.feed(block)
    except EventTooLarge as error:
        raise guard.refuse(f"It sent a message of {error}.") from error


async def check_content(text: bytes, guard: MessageGuard) -> None:
    """Check a message; a long one in a thread. Raises MessageRefused."""
    if len(text) > THREAD_CHECK_BYTES:
        await anyio.to_thread.run_sync(guard.check_content, text)
    else:
        guard.check_content(text)
