"""An open session with an MCP server through fastmcp (tools spec 6).

Importing this loads the library, which takes a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import httpx2
import mcp_types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitRequestParams, ElicitResult
from fastmcp.client.transports import ClientTransport
from mcp import MCPError
from mcp.client.auth import OAuthFlowError
from pydantic import ValidationError

from kimi.application.codec.envelope import encode_json, replace_surrogates
from kimi.application.ports import (
    Elicitation,
    SourceAnswerRefused,
    SourceCallFailed,
    SourceDisconnected,
    SourceTimedOut,
    SourceTool,
)
from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.mcp.config.variables import expand_server
from kimi.infrastructure.mcp.host_context import McpHostContext
from kimi.infrastructure.mcp.oauth.client import StoredLogin
from kimi.infrastructure.mcp.oauth.logins import load_stored_login
from kimi.infrastructure.mcp.result_conversion import convert_result, select_usable_tools
from kimi.infrastructure.mcp.server_link import AnswerElicitation, LoginRequired, OpenSession, RemoteSession
from kimi.infrastructure.mcp.transport.lenient import MAX_LISTED_TOOLS, LenientTransport
from kimi.infrastructure.mcp.transport.message_guard import MessageGuard
from kimi.infrastructure.mcp.transport.remote import create_transport
from kimi.infrastructure.mcp.transport.stdio import ProcessTransport, protect_module_path

logger = logging.getLogger(__name__)

HANDSHAKE_MODES: Final = ("legacy", "auto")
"""The ways to begin a session, in order.

The older handshake is first: requests and notifications of a server work only with it, and a server that knows nothing
newer may not answer anything else.
"""

_LOGIN_MESSAGE: Final = "It wants a login; run: kimi mcp auth {}"
_REJECTED_MESSAGE: Final = "It does not take the login that is configured (HTTP {})."
_NO_LOGIN_MESSAGE: Final = (
    'It wants a login (HTTP {}); give its entry "auth": "oauth", a token as "auth", or "headers".'
)
_STATUS_MESSAGE: Final = "It answered with HTTP status {}."
MAX_TOOL_PAGES: Final = 100
MAX_CURSOR_CHARS: Final = 64 * 1024
MAX_OPEN_QUESTIONS: Final = 4
"""How many questions of a server may wait for the user at a time; more are declined."""

MAX_LOGGED_CHARS: Final = 8192
TIMED_OUT_CODE: Final = -32001
CLOSED_CODE: Final = -32000
VERSION_UNKNOWN_CODE: Final = -32022
"""The server no longer knows the handshake; the newer one is tried then."""


def create_session_opener(
    host: McpHostContext,
    transport_override: Callable[[McpServer], ClientTransport | None] | None = None,
    modes: Sequence[str] | None = None,
) -> OpenSession:
    """Return an opener of sessions for servers of `host`.

    `transport_override` may return another transport than a server's configuration says; `modes` are the handshakes to
    try instead of `HANDSHAKE_MODES`.
    """

    @asynccontextmanager
    async def open_session(server: McpServer, elicit: AnswerElicitation) -> AsyncGenerator[RemoteSession, None]:
        server = expand_server(server, host.environ)
        host.hide_secrets(host.find_secrets(server))
        guard = MessageGuard(host.max_message_bytes)
        session = _FastMcpSession(server, host, guard)
        login = _load_login(server, host)
        server_transport = LenientTransport(
            (transport_override and transport_override(server)) or _create_server_transport(server, host, login, guard),
            guard,
        )
        async with AsyncExitStack() as stack:
            try:
                await session.connect(stack, server_transport, elicit, modes or HANDSHAKE_MODES)
            except Exception as error:
                session.raise_refusal(error)
                _check_login(server, login, server_transport.error_status, error)
                if server_transport.error_status is not None and not isinstance(error.__cause__, OAuthFlowError):
                    raise ConnectionError(_STATUS_MESSAGE.format(server_transport.error_status)) from error
                raise
            yield session

    return open_session


def _create_server_transport(
    server: McpServer, host: McpHostContext, login: httpx2.Auth | None, guard: MessageGuard
) -> ClientTransport:
    if server.command is None:
        return create_transport(server, login, guard)
    cwd = str(Path(host.work_dir, Path(server.cwd or "").expanduser()))
    command = [server.command, *server.args]
    env = protect_module_path(command, server.env, cwd, host.work_dir)
    log = host.create_log(server)
    return ProcessTransport(command, env, cwd, log, host.running_processes, host.environ, guard)


def _load_login(server: McpServer, host: McpHostContext) -> StoredLogin | None:
    if server.auth != "oauth" or server.url is None:
        return None
    if (login := load_stored_login(host.share_dir, server.url)) is None:
        raise LoginRequired(_LOGIN_MESSAGE.format(server.name))
    return login


def _check_login(server: McpServer, login: StoredLogin | None, status: int | None, error: Exception) -> None:
    """Raise LoginRequired if the connection failed for lack of a valid login."""
    if login is not None and login.is_rejected:
        raise LoginRequired(_LOGIN_MESSAGE.format(server.name)) from error
    if status in (401, 403):
        message = _REJECTED_MESSAGE if server.auth or server.headers else _NO_LOGIN_MESSAGE
        raise LoginRequired(message.format(status)) from error


class _FastMcpSession:
    """A session through the library; implements `RemoteSession`."""

    def __init__(self, server: McpServer, host: McpHostContext, guard: MessageGuard) -> None:
        self.lost = asyncio.Event()
        self.tools_changed = asyncio.Event()
        self._server = server
        self._host = host
        self._guard = guard
        self._log = host.create_log(server)
        self._open_questions = 0

    @property
    def refusal(self) -> str | None:
        """See `RemoteSession`."""
        return self._guard.refusal

    def raise_refusal(self, error: Exception) -> None:
        """Raise ConnectionError if the connection was given up, which the library does not know."""
        if self._guard.refusal is not None:
            raise ConnectionError(self._guard.refusal) from error

    async def connect(
        self, stack: AsyncExitStack, transport: LenientTransport, elicit: AnswerElicitation, modes: Sequence[str]
    ) -> None:
        """Connect with the first of `modes` that works, until `stack` is left. Raises what the library raises."""
        for mode in modes:
            self._client = self._new_client(transport, elicit, mode)
            try:
                await stack.enter_async_context(self._client)
            except MCPError as error:
                if error.error.code != VERSION_UNKNOWN_CODE or mode == modes[-1]:
                    raise
            else:
                break
        stack.push_async_callback(self._client.close)
        stack.callback(self._log.close)
        if isinstance(transport.inner, ProcessTransport):
            watching = asyncio.ensure_future(self._watch_process(transport.inner))
            stack.callback(watching.cancel)

    async def list_tools(self) -> Sequence[SourceTool]:
        """See `RemoteSession`."""
        try:
            listed = await self._list_pages()
        except Exception as error:
            self.raise_refusal(error)
            raise
        return await anyio.to_thread.run_sync(select_usable_tools, self._server.name, listed, self._host.check_schema)

    async def _list_pages(self) -> list[mcp_types.Tool]:
        """List page after page, until a limit is reached: a server may name another page for ever."""
        listed: list[mcp_types.Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_TOOL_PAGES):
            page = await self._client.list_tools_mcp(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return listed
            if cursor in seen or len(listed) > MAX_LISTED_TOOLS or len(cursor) > MAX_CURSOR_CHARS:
                break
            seen.add(cursor)
        logger.warning(
            "the tools of the MCP server %s have no end: the first %d are used", self._server.name, len(listed)
        )
        return listed[:MAX_LISTED_TOOLS]

    async def call_tool(self, tool: str, arguments: JsonObject) -> ToolReturnValue:
        """See `RemoteSession`."""
        sent = replace_surrogates(
            dict(arguments)
        )  # half a surrogate pair cannot be written, and would cost the connection
        try:
            result = await self._client.call_tool_mcp(tool, sent, progress_handler=self._on_progress)
        except MCPError as error:
            if self._guard.refusal is not None:
                raise SourceAnswerRefused(self._guard.refusal) from error
            raise _to_call_error(error) from error
        except ValidationError as error:
            raise SourceCallFailed("The server gave a result that is none.") from error
        except Exception as error:
            raise SourceDisconnected(str(error)) from error
        return await anyio.to_thread.run_sync(convert_result, result)

    async def _watch_process(self, transport: ProcessTransport) -> None:
        await transport.output_ended.wait()
        self.lost.set()

    def _new_client(self, transport: ClientTransport, elicit: AnswerElicitation, mode: str) -> Client[ClientTransport]:
        async def on_elicitation(
            message: str, response_type: object, params: ElicitRequestParams, context: object
        ) -> ElicitResult[dict[str, Any]]:
            if self._open_questions >= MAX_OPEN_QUESTIONS:
                return ElicitResult(action="decline", content=None)
            self._open_questions += 1
            try:
                answer = await elicit(_to_elicitation(message, params))
            finally:
                self._open_questions -= 1
            content = replace_surrogates(dict(answer.content)) if answer.content else None
            return ElicitResult(action=answer.action, content=content)

        return Client(
            transport,
            name=self._server.name,
            mode=mode,
            roots=self._list_roots,
            elicitation_handler=on_elicitation,
            log_handler=self._on_log,
            message_handler=self._on_message,
            client_info=mcp_types.Implementation(name="kimi", version=self._host.version),
        )

    async def _list_roots(self, context: object) -> list[str]:
        return [Path(root).as_uri() for root in self._host.list_roots()]

    async def _on_message(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.tools_changed.set()

    async def _on_log(self, message: mcp_types.LoggingMessageNotificationParams) -> None:
        text = message.data if isinstance(message.data, str) else encode_json(message.data).decode("utf-8", "replace")
        self._log.write(f"{message.level}: {text[:MAX_LOGGED_CHARS]}\n".encode("utf-8", "replace"))

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        of = f" of {total:g}" if total is not None else ""
        self._log.write(f"progress: {progress:g}{of} {(message or '')[:MAX_LOGGED_CHARS]}\n".encode("utf-8", "replace"))


def _to_elicitation(message: str, params: ElicitRequestParams) -> Elicitation:
    if isinstance(params, mcp_types.ElicitRequestFormParams):
        return Elicitation(message, params.requested_schema)
    return Elicitation(message, url=params.url)


def _to_call_error(error: MCPError) -> SourceCallFailed:
    text, code = error.error.message, error.error.code
    if code == TIMED_OUT_CODE:
        return SourceTimedOut(text)
    if code == CLOSED_CODE or text == "Session terminated":
        return SourceDisconnected(text)
    return SourceCallFailed(text)
