"""The way to one remote MCP server (tools spec 4.1, 6.2). Importing this loads fastmcp."""

from __future__ import annotations

import httpx2
from fastmcp.client.transports import ClientTransport, SSETransport, StreamableHttpTransport

from kimi.application.settings import McpServer


def transport_to(server: McpServer, auth: httpx2.Auth | None = None) -> ClientTransport:
    """The transport for `server`, which has a URL and its variables put in already; nothing is connected.

    `auth` is the login of a server with `auth: "oauth"`; any other `auth` of it is a bearer token.
    """
    assert server.url is not None, "a usable entry has a command or a URL"
    access = auth if server.auth == "oauth" else server.auth
    if server.transport == "sse":
        timeout = server.sse_read_timeout_s
        return SSETransport(server.url, dict(server.headers), auth=access, sse_read_timeout=timeout)
    return StreamableHttpTransport(server.url, dict(server.headers), auth=access)
