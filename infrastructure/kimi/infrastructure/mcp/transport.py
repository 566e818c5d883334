"""The way to one MCP server (tools spec 4.1, 6.2). Importing this loads fastmcp."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import httpx2
from fastmcp.client.transports import ClientTransport, SSETransport, StdioTransport, StreamableHttpTransport

from kimi.application.settings import McpServer


def transport_to(
    server: McpServer,
    *,
    work_dir: str,
    auth: httpx2.Auth | None = None,
    stderr: Path | TextIO | None = None,
) -> ClientTransport:
    """The transport for `server`, whose variables are put in already; nothing is started or connected.

    `auth` is the login of a server with `auth: "oauth"`; any other `auth` of it is a bearer token. `stderr` takes what
    a process says there; ours, if None. A relative `cwd` counts from `work_dir`.
    """
    if server.command is not None:
        cwd = str(Path(work_dir, Path(server.cwd or "").expanduser()))
        return StdioTransport(server.command, list(server.args), dict(server.env), cwd, log_file=stderr)
    assert server.url is not None, "a usable entry has a command or a URL"
    access = auth if server.auth == "oauth" else server.auth
    if server.transport == "sse":
        timeout = server.sse_read_timeout_s
        return SSETransport(server.url, dict(server.headers), auth=access, sse_read_timeout=timeout)
    return StreamableHttpTransport(server.url, dict(server.headers), auth=access)
