"""A session that tolerates faulty servers and reports HTTP statuses. Loads the library.

The library refuses a whole list of tools if one is malformed, refuses results that do not fit the schema that their own
server states for them, and does not distinguish HTTP errors.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import httpx2
import mcp_types
from fastmcp.client.transports import ClientTransport, SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import TransportOptions
from mcp import ClientSession
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import TypeAdapter

from kimi.infrastructure.mcp.transport.guarded_body import guard_response
from kimi.infrastructure.mcp.transport.message_guard import MessageGuard
from kimi.infrastructure.mcp.transport.remote import OPEN_TIMEOUT_S

logger = logging.getLogger(__name__)

MAX_DEPTH: Final = 100
"""Tools that are nested deeper are left out: neither the library nor providers accept them."""

MAX_TOOL_VALUES: Final = 20_000
"""Tools that consist of more JSON values are left out: they are checked one by one."""

MAX_LISTED_TOOLS: Final = 2000
"""How many tools of one server are looked at; the others are left out. No model can use that many."""

MAX_BLOCKS: Final = 1000
"""How many blocks of a result's content are looked at."""

FREE_OPENED_STREAMS: Final = 10
MAX_OPENED_STREAMS: Final = 30
"""How many streams of events are opened in a minute: the first ones at once, the others one a second."""

_TOOL_KEYS: Final = ("name", "title", "description", "inputSchema", "annotations")
"""The members that are checked; other members of a tool are ignored."""

_CONTENT_BLOCK_ADAPTER: Final[TypeAdapter[object]] = TypeAdapter(mcp_types.ContentBlock)


class LenientTransport(ClientTransport):
    """Another transport, with `LenientSession`s. `error_status` is the last HTTP status that reported an error.

    `guard` limits the bodies of all HTTP responses, those about a login included.
    """

    def __init__(self, inner: ClientTransport, guard: MessageGuard) -> None:
        self.inner = inner
        self.guard = guard
        self._reopened_at: deque[float] = deque()
        self.error_status: int | None = None
        self.legacy_only = inner.legacy_only
        if isinstance(inner, StreamableHttpTransport | SSETransport):
            inner.httpx_client_factory = self._new_http_client

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[ClientSession, None]:
        """See `ClientTransport`."""
        options = replace(transport_options or TransportOptions(), session_class=LenientSession)
        async with self.inner.connect_session(transport_options=options, **session_kwargs) as session:
            yield session

    async def close(self) -> None:
        """See `ClientTransport`."""
        await self.inner.close()

    def get_session_id(self) -> str | None:
        """See `ClientTransport`."""
        return self.inner.get_session_id()

    def _new_http_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
        **more: object,  # fastmcp asks to follow redirects; the transport does so, within its origin
    ) -> httpx2.AsyncClient:
        client = create_mcp_http_client(headers, timeout or httpx2.Timeout(OPEN_TIMEOUT_S, read=None), auth)
        client.event_hooks.setdefault("response", []).extend((self._record_error_status, self._guard_response))
        return client

    async def _guard_response(self, response: httpx2.Response) -> None:
        if response.request.method == "GET":
            await self._slow_down()
        await guard_response(response, self.guard)

    async def _slow_down(self) -> None:
        """Hold up a server that ends its streams of events at once: the library opens them again without a limit.

        Raises:
            httpx2.StreamError: it was opened `MAX_OPENED_STREAMS` times in a minute.
        """
        now = anyio.current_time()
        while self._reopened_at and now - self._reopened_at[0] > 60:
            self._reopened_at.popleft()
        if len(self._reopened_at) >= MAX_OPENED_STREAMS:
            raise httpx2.StreamError("the server ends its streams of events again and again")
        self._reopened_at.append(now)
        if len(self._reopened_at) > FREE_OPENED_STREAMS:
            await anyio.sleep(1)

    async def _record_error_status(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.error_status = response.status_code


class LenientSession(ClientSession):
    """A session that leaves out malformed tools, names unknown content, and accepts every result."""

    def __init__(
        self,
        read_stream: ReadStream[SessionMessage | Exception],
        write_stream: WriteStream[SessionMessage],
        **kwargs: Any,
    ) -> None:
        super().__init__(_CleanedStream(read_stream), write_stream, **kwargs)

    async def validate_tool_result(self, name: str, result: mcp_types.CallToolResult) -> None:
        """Accept the result unchecked. To check it, the library would also list the tools again."""


class _CleanedStream:
    """A stream of messages without malformed tools and unknown contents."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception]) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        """The context that the library stores with a message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return _clean_message(await self._stream.receive())

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _clean_message(await self._stream.__anext__())

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


def _clean_message(message: SessionMessage | Exception) -> SessionMessage | Exception:
    if isinstance(message, SessionMessage) and isinstance(message.message, mcp_types.JSONRPCResponse):
        result = message.message.result
        if isinstance(tools := result.get("tools"), list):
            listed = cast("list[Any]", tools)
            if len(listed) > MAX_LISTED_TOOLS:
                logger.warning("of %d tools of an MCP server the first %d are used", len(listed), MAX_LISTED_TOOLS)
            result["tools"] = [
                whole for tool in listed[:MAX_LISTED_TOOLS] if (whole := _complete_tool(tool)) is not None
            ]
        if "structuredContent" in result:
            result.setdefault("content", [])
        if isinstance(content := result.get("content"), list):
            result["content"] = _limit_blocks(cast("list[Any]", content))
    return message


def _limit_blocks(blocks: list[Any]) -> list[object]:
    kept = [_replace_unknown_block(block) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        kept.append({"type": "text", "text": f"[{len(blocks) - MAX_BLOCKS} more blocks of content are left out]"})
    return kept


def _replace_unknown_block(block: object) -> object:
    """Return the block of a result's content, or a text that replaces an unknown one."""
    try:
        _CONTENT_BLOCK_ADAPTER.validate_python(block, by_name=False)
    except ValueError:
        members = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        return {"type": "text", "text": f"[Unsupported content: {members.get('type', 'unknown')}]"}
    else:
        return block


def _complete_tool(tool: object) -> dict[str, Any] | None:
    """Return the tool with often forgotten members added; None if it is malformed."""
    fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    found = {key: fields[key] for key in _TOOL_KEYS if key in fields}
    schema = found.get("inputSchema")
    if isinstance(schema, dict):
        found = {**found, "inputSchema": {"type": "object", **cast("dict[str, Any]", schema)}}
    fault = _find_tool_fault(found)
    if fault is not None:
        logger.warning("the tool %r of an MCP server is left out: %s", found.get("name"), fault[:300])
        return None
    return found


def _find_tool_fault(tool: dict[str, Any]) -> str | None:
    if (fault := _find_shape_fault(tool)) is not None:
        return fault
    try:
        methods.validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [tool]})
        str(tool["name"]).encode()  # half a surrogate pair could not be sent back
    except ValueError as error:
        return str(error)
    return None if tool["inputSchema"]["type"] == "object" else "its parameters are no object"


def _find_shape_fault(tool: dict[str, Any]) -> str | None:
    """Return a fault if the tool is too deep or has too many values. Takes time for `MAX_TOOL_VALUES` at most."""
    level: list[object] = [tool]
    values = 0
    for _ in range(MAX_DEPTH + 1):
        level = [part for value in level for part in _list_parts(value)]
        values += len(level)
        if not level:
            return None
        if values > MAX_TOOL_VALUES:
            return "it has too many values"
    return "it is nested too deeply"


def _list_parts(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()
