"""The commands of `kimi mcp` that connect: `test` and `auth` (tools spec 4.5).

While they run, stderr is the log: libraries and the processes of servers write there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

import anyio

from kimi.application.settings.settings import McpServer
from kimi.interfaces.bootstrap.admin import OfferedTools, build_mcp_logins, find_server_secrets, list_server_tools
from kimi.interfaces.process.graceful_shutdown import GracefulShutdown, exit_by_signal
from kimi.interfaces.process.log import mask_secrets, start_logging
from kimi.interfaces.process.streams import Streams, take_streams
from kimi.interfaces.process.terminal_escape import escape_line

PrintLine: TypeAlias = Callable[[str], None]

END_S: Final = 5.0
"""Seconds that servers have to end after a signal (tools spec 4.9)."""


def try_connection(server: McpServer, share: str, as_json: bool, print_line: PrintLine) -> int:
    """Connect and show the tools of the server; return the exit status."""
    streams = _open_streams(server, share)
    if not as_json:
        print_line(f"Testing connection to '{server.name}'...")
    found = _load_tools(server, share)
    if as_json:
        print_line(json.dumps({"name": server.name, **_encode_outcome(found)}))
    elif isinstance(found, str):
        streams.write_error(f"✗ Connection failed: {found}\n")
    else:
        _print_tools(server.name, found, print_line)
    return 1 if isinstance(found, str) else 0


def authorize(server: McpServer, share: str, print_line: PrintLine) -> int:
    """Log in with the user's browser and count the tools of the server; return the exit status."""
    streams = _open_streams(server, share)
    print_line(f"Authorizing with '{server.name}'...")
    print_line("A browser window will open for authorization.")

    def show_address(url: str) -> None:
        streams.write_error(f"If it does not open, visit {escape_line(url, 8000)}\n")

    found = _load_tools(server, share, show_address)
    if isinstance(found, str):
        streams.write_error(f"Authorization failed: {found}\n")
        return 1
    print_line(f"Successfully authorized with '{server.name}'.")
    print_line(f"Available tools: {len(found)}")
    if not build_mcp_logins(share, os.environ).has_login(server):
        streams.write_error(
            f"'{server.name}' wants no login; remove 'auth' from its entry, or sessions wait for one.\n"
        )
    return 0


def _open_streams(server: McpServer, share: str) -> Streams:
    streams = take_streams(share, protocol=False)
    start_logging(share, debug=False, secrets=find_server_secrets(server, os.environ, share))
    return streams


def _print_tools(name: str, tools: OfferedTools, print_line: PrintLine) -> None:
    print_line(f"✓ Connected to '{name}'")
    print_line(f"  Available tools: {len(tools)}")
    if tools:
        print_line("  Tools:")
    for tool, description in tools:
        print_line(f"    - {escape_line(tool)}: {escape_line(description, 50)}")


def _encode_outcome(found: OfferedTools | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"ok": False, "error": found}
    return {"ok": True, "tools": [{"name": name, "description": description} for name, description in found]}


def _load_tools(server: McpServer, share: str, show_address: PrintLine | None = None) -> OfferedTools | str:
    """Return the tools of the server, or as `Type: text` why there are none. With `show_address` the user logs in."""

    async def connect() -> OfferedTools | str:
        try:
            found = await list_server_tools(server, share, os.getcwd(), os.environ, show_address)
        except Exception as error:  # the library and the server may fail in any way
            return mask_secrets(escape_line(f"{type(error).__name__}: {error}", 1000))
        return [(mask_secrets(name), mask_secrets(description)) for name, description in found]

    return anyio.run(_run_until_signal, connect)


async def _run_until_signal(work: Callable[[], Awaitable[OfferedTools | str]]) -> OfferedTools | str:
    """Return the outcome of `work`.

    A signal first cancels `work`, so that no process of a server is left, and then ends this process. Raises
    KeyboardInterrupt: the signal was an interrupt.
    """
    found: OfferedTools | str = []
    tasks = anyio.create_task_group()
    stopping = GracefulShutdown(END_S, partial(os._exit, 1))
    async with tasks:
        tasks.start_soon(stopping.watch_signals, tasks.cancel_scope.cancel)
        found = await work()
        tasks.cancel_scope.cancel()
    stopping.disarm_watchdog()
    if stopping.exit_signal is not None:
        exit_by_signal(stopping.exit_signal)
    if stopping.first_signal is not None:
        raise KeyboardInterrupt
    return found
