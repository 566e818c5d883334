"""One short connection to an MCP server, to list its tools (tools spec 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from kimi.application.ports import Elicitation, ElicitationAnswer
from kimi.application.settings.settings import McpServer
from kimi.domain.errors import ConfigError, McpUnauthorized
from kimi.domain.tools.mcp_tool_names import show_hidden
from kimi.infrastructure.mcp.config.variables import expand_server
from kimi.infrastructure.mcp.fastmcp_import import load_fastmcp
from kimi.infrastructure.mcp.host_context import McpHostContext
from kimi.infrastructure.mcp.oauth.logins import has_tokens
from kimi.infrastructure.mcp.server_link import LoginRequired

if TYPE_CHECKING:
    from kimi.infrastructure.mcp.oauth.client import BrowserLogin

DEFAULT_CONNECT_MS = 30_000


async def list_offered_tools(
    server: McpServer, host: McpHostContext, login: BrowserLogin | None = None
) -> list[tuple[str, str]]:
    """Connect, list the tools as (name, description), and disconnect. A process that was started has ended then.

    The texts are for people: what a screen hides or obeys is escaped in them.

    Without `login`, a server with `auth: "oauth"` is accessed with its stored login, and everything must be done within
    the `connect_timeout_ms` of the server. The library is loaded only when a connection is made.

    Raises:
        ConfigError: the entry cannot be used, or a variable is missing.
        McpUnauthorized: the user must log in; nothing was sent if there is no stored login.
        TimeoutError: the server did not answer in time.
        Exception: whatever the library raises when it cannot connect.
    """
    if server.config_error is not None:
        raise ConfigError(f"The entry of '{server.name}' cannot be used. {server.config_error}")
    url = expand_server(server, host.environ).url
    if server.auth == "oauth" and url is not None and login is None and not has_tokens(host.share_dir, url):
        raise McpUnauthorized(f"Authorization is required; run: kimi mcp auth {server.name}")
    seconds = (server.connect_timeout_ms or DEFAULT_CONNECT_MS) / 1000
    with anyio.move_on_after(None if login else seconds):
        return await _list_tools(server, host, login)
    raise TimeoutError(f"It did not answer within {seconds:g} s.")


async def _list_tools(server: McpServer, host: McpHostContext, login: BrowserLogin | None) -> list[tuple[str, str]]:
    load_fastmcp()
    from fastmcp.client.transports import ClientTransport

    from kimi.infrastructure.mcp.session import create_session_opener
    from kimi.infrastructure.mcp.transport.remote import create_transport

    def by_login(expanded_server: McpServer) -> ClientTransport | None:
        return create_transport(expanded_server.model_copy(update={"auth": "oauth"}), login) if login else None

    if login is not None:  # the stored login is replaced by a new one
        server = server.model_copy(update={"auth": None})
    try:
        async with create_session_opener(host, by_login)(server, _decline_elicitation) as session:
            tools = await session.list_tools()
            return [(show_hidden(tool.name), show_hidden(tool.description, "\n\t")) for tool in tools]
    except LoginRequired as error:
        if login is not None and error.__cause__ is not None:  # the reason why the user's login failed
            raise error.__cause__ from None
        raise McpUnauthorized(str(error)) from None


async def _decline_elicitation(elicitation: Elicitation) -> ElicitationAnswer:
    return ElicitationAnswer("decline")
