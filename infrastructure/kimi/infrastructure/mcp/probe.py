"""One short connection to an MCP server, to see what it offers (tools spec 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kimi.application.settings import McpServer
from kimi.domain.errors import ConfigError, McpUnauthorized
from kimi.infrastructure.mcp.library import load_library
from kimi.infrastructure.mcp.oauth import headless_auth
from kimi.infrastructure.mcp.variables import expanded

if TYPE_CHECKING:
    from kimi.infrastructure.mcp.oauth_login import BrowserLogin, StoredLogin

DEFAULT_CONNECT_MS = 30_000


async def offered_tools(
    server: McpServer, *, share: str, work_dir: str, environ: Mapping[str, str], login: BrowserLogin | None = None
) -> list[tuple[str, str]]:
    """Connect, list the tools as (name, description), disconnect; a process that was started has ended then.

    Without `login` a server with `auth: "oauth"` is entered by the stored one. The time of `connect_timeout_ms` is
    that for each answer of the server, unless a user logs in. The library is loaded when there is something to do.

    Raises:
        ConfigError: the entry cannot be used, or a variable is missing.
        McpUnauthorized: the user has to log in; nothing was sent if there is no stored login.
        Exception: whatever the library raises when it cannot connect.
    """
    if server.broken is not None:
        raise ConfigError(f"The entry of '{server.name}' cannot be used. {server.broken}")
    server = expanded(server, environ)
    stored = None
    if server.auth == "oauth" and server.url is not None and login is None:
        stored = headless_auth(share, server.url)
        if stored is None:
            raise unauthorized(server.name)
    try:
        return await _list_tools(server, work_dir, login or stored, patient=login is not None)
    except Exception:
        if stored is not None and stored.refused:
            raise unauthorized(server.name) from None
        raise


async def _list_tools(
    server: McpServer, work_dir: str, access: StoredLogin | BrowserLogin | None, *, patient: bool
) -> list[tuple[str, str]]:
    load_library()
    from fastmcp import Client

    from kimi.infrastructure.mcp.transport import transport_to

    seconds = None if patient else (server.connect_timeout_ms or DEFAULT_CONNECT_MS) / 1000
    client = Client(transport_to(server, work_dir=work_dir, auth=access), timeout=seconds, init_timeout=seconds)
    try:
        async with client:
            return [(tool.name, tool.description or "") for tool in await client.list_tools()]
    finally:
        with suppress(Exception):  # the reason for the failure, a second time
            await client.close()


def unauthorized(name: str) -> McpUnauthorized:
    """The error for a person: what they have to do."""
    return McpUnauthorized(f"Authorization is required; run: kimi mcp auth {name}")
