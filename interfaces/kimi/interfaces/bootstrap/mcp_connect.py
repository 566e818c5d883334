"""The commands of `kimi mcp` that connect: `test` and `auth` (tools spec 4.5). A composition root like `mcp_commands`.

While they run, stderr is the log: libraries and the processes of servers talk there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kimi.application.settings.settings import McpServer
from kimi.interfaces.process.plain_text import plain_line
from kimi.interfaces.process.process import Streams, hide_secrets, masked, start_logging, take_streams
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.infrastructure.mcp.host_context import Place

Say: TypeAlias = Callable[[str], None]
Tools: TypeAlias = list[tuple[str, str]]
"""Name and description of each."""

END_S: Final = 5.0
"""Servers have this long to end when a signal asks for it (tools spec 4.9)."""


def try_out(server: McpServer, share: str, as_json: bool, say: Say) -> int:
    """Connect and show the tools of the server; the result is the exit status."""
    streams = _streams(server, share)
    if not as_json:
        say(f"Testing connection to '{server.name}'...")
    found = _tools(server, share)
    if as_json:
        say(json.dumps({"name": server.name, **_outcome(found)}))
    elif isinstance(found, str):
        streams.write_error(f"✗ Connection failed: {found}\n")
    else:
        _show(server.name, found, say)
    return 1 if isinstance(found, str) else 0


def authorize(server: McpServer, share: str, say: Say) -> int:
    """Log in with the user's browser and count the tools of the server; the result is the exit status."""
    from kimi.infrastructure.mcp.config.variables import expanded
    from kimi.infrastructure.mcp.oauth.logins import has_tokens

    streams = _streams(server, share)
    say(f"Authorizing with '{server.name}'...")
    say("A browser window will open for authorization.")

    def show_address(url: str) -> None:
        streams.write_error(f"If it does not open, visit {plain_line(url, 8000)}\n")

    found = _tools(server, share, show_address)
    if isinstance(found, str):
        streams.write_error(f"Authorization failed: {found}\n")
        return 1
    say(f"Successfully authorized with '{server.name}'.")
    say(f"Available tools: {len(found)}")
    if not has_tokens(share, expanded(server, os.environ).url or ""):
        streams.write_error(
            f"'{server.name}' wants no login; remove 'auth' from its entry, or sessions wait for one.\n"
        )
    return 0


def _streams(server: McpServer, share: str) -> Streams:
    from kimi.infrastructure.mcp.config.server_secrets import server_secrets

    streams = take_streams(share, protocol=False)
    start_logging(share, debug=False, secrets=server_secrets(server, os.environ, share))
    return streams


def _show(name: str, tools: Tools, say: Say) -> None:
    say(f"✓ Connected to '{name}'")
    say(f"  Available tools: {len(tools)}")
    if tools:
        say("  Tools:")
    for tool, description in tools:
        say(f"    - {plain_line(tool)}: {plain_line(description, 50)}")


def _outcome(found: Tools | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"ok": False, "error": found}
    return {"ok": True, "tools": [{"name": name, "description": description} for name, description in found]}


def _tools(server: McpServer, share: str, show_address: Say | None = None) -> Tools | str:
    """The tools of the server, or as `Type: text` why they cannot be had. With `show_address` the user logs in."""
    import anyio

    from kimi.infrastructure.mcp.config.variables import expanded
    from kimi.infrastructure.mcp.oauth.logins import browser_auth
    from kimi.infrastructure.mcp.probe import offered_tools

    async def connect() -> Tools:
        login = None
        if show_address is not None:
            login = browser_auth(share, expanded(server, os.environ).url or "", show_address)
        return await offered_tools(server, _place(share), login)

    async def tell() -> Tools | str:
        try:
            found = await connect()
        except Exception as error:
            return masked(plain_line(f"{type(error).__name__}: {error}", 1000))
        return [(masked(name), masked(description)) for name, description in found]

    return anyio.run(_unless_stopped, tell)


async def _unless_stopped(work: Callable[[], Awaitable[Tools | str]]) -> Tools | str:
    """The outcome of `work`. A signal ends it in good order, so that no process of a server is left, and then us.

    Raises KeyboardInterrupt: that was what came.
    """
    import anyio

    from kimi.interfaces.process.graceful_shutdown import Stopping, end_by

    found: Tools | str = []
    tasks = anyio.create_task_group()
    stopping = Stopping(END_S, tasks.cancel_scope.cancel, partial(os._exit, 1))
    async with tasks:
        tasks.start_soon(stopping.watch_signals)
        found = await work()
        tasks.cancel_scope.cancel()
    stopping.release()
    if stopping.ended_by is not None:
        end_by(stopping.ended_by)
    if stopping.signal is not None:
        raise KeyboardInterrupt
    return found


def _place(share: str) -> Place:
    from kimi.infrastructure.json_schema import check_schema
    from kimi.infrastructure.mcp.host_context import Place

    here = os.getcwd()
    return Place(here, share, os.environ, __version__, check_schema, lambda: [here], hide_secrets)
