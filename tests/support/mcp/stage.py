"""A tool source connected to real servers, below a temporary directory."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kimi.application.ports import Elicitation, ElicitationAnswer, SourceServer, ToolSource
from kimi.application.settings.settings import McpServer, McpSettings
from kimi.domain.content.parts import TextPart
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.json_schema import check_schema
from kimi.infrastructure.mcp.host_context import McpHostContext
from kimi.infrastructure.mcp.server_link import LinkTimings
from kimi.infrastructure.mcp.tool_source import McpToolSource

if TYPE_CHECKING:
    from fastmcp.client.transports import ClientTransport

QUICK = LinkTimings(connect_timeout_s=20, call_timeout_s=10, restart_pauses_s=(0.01, 0.02, 0.03), tools_quiet_s=0.01)


def place_in(
    directory: Path, environ: Mapping[str, str] | None = None, hide: Callable[[Collection[str]], None] | None = None
) -> McpHostContext:
    """Return a context with the work directory and share directory below `directory`."""
    work, share = directory / "work", directory / "share"
    work.mkdir(exist_ok=True)
    given = os.environ if environ is None else environ
    roots = [str(work), str(directory)]
    return McpHostContext(
        str(work), str(share), given, "1.0", check_schema, lambda: roots, hide or (lambda secrets: None)
    )


@asynccontextmanager
async def connected(
    directory: Path,
    *servers: McpServer,
    times: LinkTimings = QUICK,
    transport: Callable[[McpServer], ClientTransport | None] | None = None,
    place: McpHostContext | None = None,
    modes: Sequence[str] | None = None,
) -> AsyncGenerator[McpToolSource, None]:
    """Yield a source after every server has connected or failed; stop it on leaving."""
    settings, there = McpSettings(servers=servers), place or place_in(directory)
    source = McpToolSource(settings, there, timings=times, transport_override=transport, modes=modes)
    try:
        source.start()
        await source.wait_for_first_connect()
        yield source
    finally:
        await source.stop_and_wait(3.0)


def view(source: ToolSource, name: str) -> SourceServer:
    """Return the current state of one server."""
    (found,) = [server for server in source.servers() if server.name == name]
    return found


async def decline(wanted: Elicitation) -> ElicitationAnswer:
    """Decline an elicitation, as without a user."""
    return ElicitationAnswer("decline")


def text_of(result: ToolReturnValue) -> str:
    """Return the text of a result."""
    assert not isinstance(result.output, str)
    return "".join(part.text for part in result.output if isinstance(part, TextPart))
