"""The output of `kimi mcp` (tools spec 4.5, runtime spec 1.6); the decisions are made in `application/admin`.

Every function returns the exit status. Mistakes are one line on stderr and 1; a `mcp.json` that cannot be used raises
`UsageError`, which ends in 2. fastmcp is loaded by `test` and `auth` alone. Secrets are never shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

from kimi.application.admin import mcp_configuration as servers
from kimi.application.admin.mcp_configuration import McpLogins, McpTransport
from kimi.application.admin.mcp_secrets import encode_entry, mask_server_secrets
from kimi.application.settings.flags import share_directory
from kimi.application.settings.settings import McpServer
from kimi.domain.errors import KimiError, UsageError
from kimi.interfaces.bootstrap.admin import (
    build_mcp_configuration,
    build_mcp_logins,
    find_server_secrets,
    is_variable_reference,
)
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line, escape_text

P = ParamSpec("P")


def _report_errors(command: Callable[P, int]) -> Callable[P, int]:
    """Turn an error that is meant for the user into a line on stderr and status 1."""

    @wraps(command)
    def run_command(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except UsageError:
            raise
        except KimiError as error:
            write_stderr(f"{error}\n")
            return 1
        except KeyboardInterrupt:
            return 130

    return run_command


# --- changing the file -----------------------------------------------------------------------------------------


@_report_errors
def add_server(
    name: str,
    targets: Sequence[str],
    transport: McpTransport,
    *,
    env: Sequence[str] = (),
    headers: Sequence[str] = (),
    auth: str | None = None,
) -> int:
    """Store a server after its entry was checked; it replaces one of the same name."""
    if transport == "stdio":
        entry = servers.build_stdio_entry(targets, env, headers, auth)
    else:
        entry = servers.build_remote_entry(targets, transport, env, headers, auth)
    configuration = build_mcp_configuration(_share_directory())
    servers.add_server(configuration, name, entry)
    _print_line(f"Added MCP server '{name}' to {configuration.path}.")
    return 0


@_report_errors
def remove_server(name: str) -> int:
    """Delete a server from the file."""
    configuration = build_mcp_configuration(_share_directory())
    servers.remove_server(configuration, name)
    _print_line(f"Removed MCP server '{name}' from {configuration.path}.")
    return 0


@_report_errors
def set_server_enabled(name: str, enabled: bool) -> int:
    """Let sessions use a server, or leave it in the file unused."""
    configuration = build_mcp_configuration(_share_directory())
    servers.set_server_enabled(configuration, name, enabled)
    _print_line(f"{'Enabled' if enabled else 'Disabled'} MCP server '{name}' in {configuration.path}.")
    return 0


# --- showing ---------------------------------------------------------------------------------------------------


@_report_errors
def list_servers(as_json: bool) -> int:
    """Show every server of the file."""
    configuration = build_mcp_configuration(_share_directory())
    logins = build_mcp_logins(_share_directory(), os.environ)
    found = list(servers.list_servers(configuration))
    if as_json:
        shown = [_encode_server(server, logins) for server in found]
        _print_line(json.dumps({"path": configuration.path, "servers": shown}))
        return 0
    _print_line(f"MCP config file: {configuration.path}")
    for server in found:
        _print_line(f"  {_format_server(server, logins)}")
    if not found:
        _print_line("No MCP servers configured.")
    return 0


def _format_server(server: McpServer, logins: McpLogins) -> str:
    name = escape_line(server.name)
    if server.config_error is not None:
        return f"{name} [cannot be used: {server.config_error}]"
    target = " ".join((server.command, *server.args)) if server.command is not None else server.url or ""
    shown = escape_line(_mask_secrets(target, server), 10_000)
    wanted = f" [authorization required - run: kimi mcp auth {name}]" if servers.needs_login(server, logins) else ""
    disabled = "" if server.enabled else " [disabled]"
    return f"{name} ({server.transport}): {shown}{wanted}{disabled}"


def _encode_server(server: McpServer, logins: McpLogins) -> dict[str, Any]:
    if server.config_error is not None:
        return {"name": server.name, "enabled": server.enabled, "error": server.config_error}
    where = (
        {"command": server.command, "args": [_mask_secrets(argument, server) for argument in server.args]}
        if server.command is not None
        else {"url": _mask_secrets(server.url or "", server)}
    )
    return {
        "name": server.name,
        "transport": server.transport,
        **where,
        "enabled": server.enabled,
        "authorization_required": servers.needs_login(server, logins),
    }


def _mask_secrets(text: str, server: McpServer) -> str:
    return mask_server_secrets(text, find_server_secrets(server, os.environ))


@_report_errors
def show_server(name: str) -> int:
    """Show the entry of a server as JSON, with every value masked that may be a secret."""
    configuration = build_mcp_configuration(_share_directory())
    entry = servers.find_entry(configuration.read(), name)
    secrets = find_server_secrets(configuration.parse(name, entry), os.environ)
    _print_line(encode_entry(entry, secrets, is_variable_reference))
    return 0


# --- logins and connections ------------------------------------------------------------------------------------


@_report_errors
def reset_auth(name: str) -> int:
    """Forget the login at a server."""
    share = _share_directory()
    servers.forget_login(build_mcp_configuration(share), name, build_mcp_logins(share, os.environ))
    _print_line(f"OAuth tokens cleared for '{name}'.")
    return 0


@_report_errors
def log_in_at_server(name: str) -> int:
    """Log in at a server, in the user's browser."""
    from kimi.interfaces.admin.mcp_connect import authorize

    share = _share_directory()
    return authorize(servers.find_login_server(build_mcp_configuration(share), name), share, _print_line)


@_report_errors
def try_server(name: str, as_json: bool) -> int:
    """Connect to a server and show its tools."""
    from kimi.interfaces.admin.mcp_connect import try_connection

    share = _share_directory()
    return try_connection(servers.find_server(build_mcp_configuration(share), name), share, as_json, _print_line)


def _share_directory() -> str:
    return share_directory(os.environ)


def _print_line(text: str) -> None:
    """Write a line to stdout at once. What its encoding lacks is escaped, and what controls a terminal."""
    sys.stdout.buffer.write(f"{escape_text(text)}\n".encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
