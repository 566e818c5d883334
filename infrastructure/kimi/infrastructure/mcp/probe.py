"""One short connection to an MCP server, to see what it offers (tools spec 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from kimi.application.ports import Elicitation, ElicitationAnswer
from kimi.application.settings.settings import McpServer
from kimi.domain.errors import ConfigError, McpUnauthorized
from kimi.infrastructure.mcp.config.variables import expanded
from kimi.infrastructure.mcp.connection import NeedsLogin
from kimi.infrastructure.mcp.host_context import Place
from kimi.infrastructure.mcp.library import load_library
from kimi.infrastructure.mcp.oauth.logins import has_tokens

if TYPE_CHECKING:
    from kimi.infrastructure.mcp.oauth.client import BrowserLogin

DEFAULT_CONNECT_MS = 30_000


async def offered_tools(server: McpServer, place: Place, login: BrowserLogin | None = None) -> list[tuple[str, str]]:
    """Connect, list the tools as (name, description), disconnect; a process that was started has ended then.

    Without `login` a server with `auth: "oauth"` is entered by the stored one, and all has to be done within the
    `connect_timeout_ms` of the server. The library is loaded when there is something to connect to.

    Raises:
        ConfigError: the entry cannot be used, or a variable is missing.
        McpUnauthorized: the user has to log in; nothing was sent if there is no stored login.
        TimeoutError: the server did not answer in time.
        Exception: whatever the library raises when it cannot connect.
    """
    if server.broken is not None:
        raise ConfigError(f"The entry of '{server.name}' cannot be used. {server.broken}")
    url = expanded(server, place.environ).url
    if server.auth == "oauth" and url is not None and login is None and not has_tokens(place.share_dir, url):
        raise McpUnauthorized(f"Authorization is required; run: kimi mcp auth {server.name}")
    seconds = (server.connect_timeout_ms or DEFAULT_CONNECT_MS) / 1000
    with anyio.move_on_after(None if login else seconds):
        return await _tools(server, place, login)
    raise TimeoutError(f"It did not answer within {seconds:g} s.")


async def _tools(server: McpServer, place: Place, login: BrowserLogin | None) -> list[tuple[str, str]]:
    load_library()
    from fastmcp.client.transports import ClientTransport

    from kimi.infrastructure.mcp.session import session_opener
    from kimi.infrastructure.mcp.transport.remote import transport_to

    def by_login(expanded_server: McpServer) -> ClientTransport | None:
        return transport_to(expanded_server.model_copy(update={"auth": "oauth"}), login) if login else None

    if login is not None:  # the stored login is not wanted
        server = server.model_copy(update={"auth": None})
    try:
        async with session_opener(place, by_login)(server, _decline) as session:
            return [(tool.name, tool.description) for tool in await session.tools()]
    except NeedsLogin as error:
        if login is not None and error.__cause__ is not None:  # why the user's login failed
            raise error.__cause__ from None
        raise McpUnauthorized(str(error)) from None


async def _decline(wanted: Elicitation) -> ElicitationAnswer:
    return ElicitationAnswer("decline")
