"""An open session with an MCP server through fastmcp (tools spec 6). Importing this loads the library: a second."""

from __future__ import annotations

import asyncio
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

from kimi.application.codec.envelope import scrubbed
from kimi.application.ports import (
    Elicitation,
    SourceCallFailed,
    SourceDisconnected,
    SourceTimedOut,
    SourceTool,
)
from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.mcp.config.variables import expanded
from kimi.infrastructure.mcp.connection import Elicit, NeedsLogin, OpenSession, RemoteSession
from kimi.infrastructure.mcp.host_context import Place
from kimi.infrastructure.mcp.oauth.client import StoredLogin
from kimi.infrastructure.mcp.oauth.logins import headless_auth
from kimi.infrastructure.mcp.results import converted, usable_tools
from kimi.infrastructure.mcp.transport.lenient import LenientTransport
from kimi.infrastructure.mcp.transport.remote import transport_to
from kimi.infrastructure.mcp.transport.stdio import ProcessTransport

MODES: Final = ("legacy", "auto")
"""How sessions begin. The older handshake comes first: what a server asks of itself, and what it tells, works with it
alone; and a server that knows nothing newer may not answer anything else."""

_LOGIN: Final = "It wants a login; run: kimi mcp auth {}"
_REFUSED: Final = "It does not take the login that is configured (HTTP {})."
_NO_LOGIN: Final = 'It wants a login (HTTP {}); give its entry "auth": "oauth", a token as "auth", or "headers".'
_STATUS: Final = "It answered with HTTP status {}."
TIMED_OUT: Final = -32001
CLOSED: Final = -32000
VERSION_UNKNOWN: Final = -32022
"""A server that knows the handshake no more; the newer way is tried then."""


def session_opener(
    place: Place,
    transport: Callable[[McpServer], ClientTransport | None] | None = None,
    modes: Sequence[str] | None = None,
) -> OpenSession:
    """Opens sessions for servers at `place`. `transport` may give another way to a server than its configuration;
    `modes` are the handshakes to try instead of `MODES`.
    """

    @asynccontextmanager
    async def open_session(server: McpServer, elicit: Elicit) -> AsyncGenerator[RemoteSession, None]:
        server = expanded(server, place.environ)
        place.hide(place.secrets_of(server))
        session = _Session(server, place)
        login = _login(server, place)
        way = LenientTransport((transport and transport(server)) or _transport(server, place, login))
        async with AsyncExitStack() as stack:
            try:
                await session.enter(stack, way, elicit, modes or MODES)
            except Exception as error:
                _check_login(server, login, way.status, error)
                if way.status is not None and not isinstance(error.__cause__, OAuthFlowError):
                    raise ConnectionError(_STATUS.format(way.status)) from error
                raise
            yield session

    return open_session


def _transport(server: McpServer, place: Place, login: httpx2.Auth | None) -> ClientTransport:
    if server.command is None:
        return transport_to(server, login)
    cwd = str(Path(place.work_dir, Path(server.cwd or "").expanduser()))
    command = [server.command, *server.args]
    return ProcessTransport(command, server.env, cwd, place.log_of(server), place.running, place.environ)


def _login(server: McpServer, place: Place) -> StoredLogin | None:
    if server.auth != "oauth" or server.url is None:
        return None
    if (login := headless_auth(place.share_dir, server.url)) is None:
        raise NeedsLogin(_LOGIN.format(server.name))
    return login


def _check_login(server: McpServer, login: StoredLogin | None, status: int | None, error: Exception) -> None:
    """Raise NeedsLogin when it is for want of a login that connecting failed."""
    if login is not None and login.refused:
        raise NeedsLogin(_LOGIN.format(server.name)) from error
    if status in (401, 403):
        told = _REFUSED if server.auth or server.headers else _NO_LOGIN
        raise NeedsLogin(told.format(status)) from error


class _Session:
    """A session through the library; implements `RemoteSession`."""

    def __init__(self, server: McpServer, place: Place) -> None:
        self.lost = asyncio.Event()
        self.list_changed = asyncio.Event()
        self._server = server
        self._place = place
        self._log = place.log_of(server)

    async def enter(self, stack: AsyncExitStack, way: LenientTransport, elicit: Elicit, modes: Sequence[str]) -> None:
        """Connect by `way`, until `stack` is left. Raises what the library does."""
        for mode in modes:
            self._client = self._new_client(way, elicit, mode)
            try:
                await stack.enter_async_context(self._client)
            except MCPError as error:
                if error.error.code != VERSION_UNKNOWN or mode == modes[-1]:
                    raise
            else:
                break
        stack.push_async_callback(self._client.close)
        stack.callback(self._log.close)
        if isinstance(way.inner, ProcessTransport):
            watching = asyncio.ensure_future(self._watch(way.inner))
            stack.callback(watching.cancel)

    async def tools(self) -> Sequence[SourceTool]:
        """See `RemoteSession`."""
        listed = await self._client.list_tools()
        return await anyio.to_thread.run_sync(usable_tools, self._server.name, listed, self._place.check_schema)

    async def call(self, tool: str, arguments: JsonObject) -> ToolReturnValue:
        """See `RemoteSession`."""
        sent = scrubbed(dict(arguments))  # half a surrogate pair cannot be written, and would cost the connection
        try:
            result = await self._client.call_tool_mcp(tool, sent, progress_handler=self._on_progress)
        except MCPError as error:
            raise _failure(error) from error
        except ValidationError as error:
            raise SourceCallFailed("The server gave a result that is none.") from error
        except Exception as error:
            raise SourceDisconnected(str(error)) from error
        return converted(result)

    async def _watch(self, way: ProcessTransport) -> None:
        await way.ended.wait()
        self.lost.set()

    def _new_client(self, way: ClientTransport, elicit: Elicit, mode: str) -> Client[ClientTransport]:
        async def on_elicitation(
            message: str, response_type: object, params: ElicitRequestParams, context: object
        ) -> ElicitResult[dict[str, Any]]:
            answer = await elicit(_elicitation(message, params))
            content = scrubbed(dict(answer.content)) if answer.content else None
            return ElicitResult(action=answer.action, content=content)

        return Client(
            way,
            name=self._server.name,
            mode=mode,
            roots=self._roots,
            elicitation_handler=on_elicitation,
            log_handler=self._on_log,
            message_handler=self._on_message,
            client_info=mcp_types.Implementation(name="kimi", version=self._place.version),
        )

    async def _roots(self, context: object) -> list[str]:
        return [Path(root).as_uri() for root in self._place.roots()]

    async def _on_message(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.list_changed.set()

    async def _on_log(self, message: mcp_types.LoggingMessageNotificationParams) -> None:
        self._log.write(f"{message.level}: {message.data}\n".encode("utf-8", "replace"))

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        of = f" of {total:g}" if total is not None else ""
        self._log.write(f"progress: {progress:g}{of} {message or ''}\n".encode("utf-8", "replace"))


def _elicitation(message: str, params: ElicitRequestParams) -> Elicitation:
    if isinstance(params, mcp_types.ElicitRequestFormParams):
        return Elicitation(message, params.requested_schema)
    return Elicitation(message, url=params.url)


def _failure(error: MCPError) -> SourceCallFailed:
    text, code = error.error.message, error.error.code
    if code == TIMED_OUT:
        return SourceTimedOut(text)
    if code == CLOSED or text == "Session terminated":
        return SourceDisconnected(text)
    return SourceCallFailed(text)
