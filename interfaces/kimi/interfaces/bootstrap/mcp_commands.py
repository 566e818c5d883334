"""What the commands of `kimi mcp` do (tools spec 4.5, runtime spec 1.6). A composition root: it knows the adapters.

Every function gives the exit status. Mistakes are one line on stderr and 1; a `mcp.json` that cannot be read as one is
raised as `UsageError`, which ends in 2. fastmcp is loaded by `test` and `auth` alone. Secrets are never shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeAlias, cast

from kimi.application.settings.flags import share_directory
from kimi.application.settings.settings import McpServer
from kimi.domain.errors import KimiError, UsageError
from kimi.infrastructure.mcp.config.config_document import edit_document, ensure_server_entries, read_document
from kimi.infrastructure.mcp.config.server_config import default_config_path, parse_server
from kimi.infrastructure.mcp.config.server_secrets import find_server_secrets
from kimi.infrastructure.mcp.config.variables import expand_text, is_reference
from kimi.infrastructure.mcp.oauth.logins import clear_tokens, has_tokens
from kimi.interfaces.process.startup_errors import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line

Transport: TypeAlias = Literal["stdio", "http", "sse"]
P = ParamSpec("P")

_SECRET_FREE_KEYS = frozenset(
    {
        *("command", "args", "cwd", "url", "transport", "type", "timeout", "sse_read_timeout", "keep_alive"),
        *("description", "enabled", "disabled", "enabled_tools", "disabled_tools", "required", "connect_timeout_ms"),
        *("approval", "trust_annotations", "subagents"),
    }
)
"""Keys whose values hold no secrets, apart from those that occur elsewhere in the entry."""

HIDDEN = "***"


class McpCommandError(KimiError):
    """A command of `kimi mcp` cannot do what it was asked."""


@dataclass(frozen=True, slots=True)
class McpCommandContext:
    """Where the commands work."""

    share: str
    environ: Mapping[str, str]

    @property
    def config_path(self) -> str:
        """The file that they read and write."""
        return default_config_path(self.share)


def read_command_context() -> McpCommandContext:
    """The share directory and the variables of this process."""
    return McpCommandContext(share_directory(os.environ), os.environ)


def _report_errors(command: Callable[P, int]) -> Callable[P, int]:
    """Turn what is meant for a person into a line on stderr and status 1."""

    @wraps(command)
    def told(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except UsageError:
            raise
        except KimiError as error:
            write_stderr(f"{error}\n")
            return 1
        except KeyboardInterrupt:
            return 130

    return told


# --- changing the file -----------------------------------------------------------------------------------------


@_report_errors
def add_server(
    name: str,
    targets: Sequence[str],
    transport: Transport,
    *,
    env: Sequence[str] = (),
    headers: Sequence[str] = (),
    auth: str | None = None,
) -> int:
    """Store a server that can be used; one of the same name is replaced."""
    if transport == "stdio":
        entry = _build_stdio_entry(targets, env, headers, auth)
    else:
        entry = _build_remote_entry(targets, transport, env, headers, auth)
    if not name.strip():
        raise McpCommandError("Give the server a name.")
    if (reason := parse_server(name, entry).config_error) is not None:
        raise McpCommandError(f"Nothing was added: {reason}")
    place = read_command_context()
    with edit_document(place.config_path) as document:
        ensure_server_entries(document)[name] = entry
    _print_line(f"Added MCP server '{name}' to {place.config_path}.")
    return 0


def _build_stdio_entry(
    targets: Sequence[str], env: Sequence[str], headers: Sequence[str], auth: str | None
) -> dict[str, Any]:
    if not targets:
        raise McpCommandError("For stdio transport, provide the command to start the MCP server after `--`.")
    if headers:
        raise McpCommandError("--header is only valid for http transport.")
    if auth is not None:
        raise McpCommandError("--auth is only valid for http transport.")
    entry: dict[str, Any] = {"command": targets[0], "args": list(targets[1:])}
    return entry | ({"env": dict(_parse_pair(text, "=", "env") for text in env)} if env else {})


def _build_remote_entry(
    targets: Sequence[str], transport: Transport, env: Sequence[str], headers: Sequence[str], auth: str | None
) -> dict[str, Any]:
    if env:
        raise McpCommandError("--env is only supported for stdio transport.")
    if not targets:
        raise McpCommandError("URL is required for http transport.")
    if len(targets) > 1:
        raise McpCommandError("Multiple targets provided. Supply a single URL for http transport.")
    entry: dict[str, Any] = {"url": targets[0], "transport": transport}
    if headers:
        pairs = (_parse_pair(text, ":", "header") for text in headers)
        entry["headers"] = {key.strip(): value.strip() for key, value in pairs}
    return entry | ({"auth": auth} if auth is not None else {})


def _parse_pair(text: str, separator: str, what: str) -> tuple[str, str]:
    key, found, value = text.partition(separator)
    if not found or not key.strip():
        raise McpCommandError(f"Invalid {what} format: {text} (expected KEY{separator}VALUE).")
    return key, value


@_report_errors
def remove_server(name: str) -> int:
    """Delete a server from the file."""
    place = read_command_context()
    with edit_document(place.config_path) as document:
        _find_entry(name, document)
        del ensure_server_entries(document)[name]
    _print_line(f"Removed MCP server '{name}' from {place.config_path}.")
    return 0


@_report_errors
def switch_server(name: str, on: bool) -> int:
    """Let sessions use a server, or leave it in the file unused."""
    place = read_command_context()
    with edit_document(place.config_path) as document:
        _set_enabled(name, _find_entry(name, document), on)
    _print_line(f"{'Enabled' if on else 'Disabled'} MCP server '{name}' in {place.config_path}.")
    return 0


def _set_enabled(name: str, entry: Any, on: bool) -> None:
    if not isinstance(entry, dict):
        raise McpCommandError(f"The entry of MCP server '{name}' is not an object; add it anew.")
    table = cast(dict[str, Any], entry)
    for key in ("enabled", "disabled"):
        table.pop(key, None)
    if not on:
        table["enabled"] = False


# --- showing ---------------------------------------------------------------------------------------------------


@_report_errors
def list_servers(as_json: bool) -> int:
    """Show every server of the file."""
    place = read_command_context()
    servers = [
        parse_server(name, entry) for name, entry in ensure_server_entries(read_document(place.config_path)).items()
    ]
    if as_json:
        _print_line(
            json.dumps({"path": place.config_path, "servers": [_encode_server(server, place) for server in servers]})
        )
        return 0
    _print_line(f"MCP config file: {place.config_path}")
    for server in servers:
        _print_line(f"  {_format_server(server, place)}")
    if not servers:
        _print_line("No MCP servers configured.")
    return 0


def _format_server(server: McpServer, context: McpCommandContext) -> str:
    name = escape_line(server.name)
    if server.config_error is not None:
        return f"{name} [cannot be used: {server.config_error}]"
    target = " ".join((server.command, *server.args)) if server.command is not None else server.url or ""
    wanted = f" [authorization required - run: kimi mcp auth {name}]" if _needs_login(server, context) else ""
    disabled = "" if server.enabled else " [disabled]"
    return (
        f"{name} ({server.transport}): {escape_line(_mask_secrets(target, server, context), 10_000)}{wanted}{disabled}"
    )


def _encode_server(server: McpServer, context: McpCommandContext) -> dict[str, Any]:
    if server.config_error is not None:
        return {"name": server.name, "enabled": server.enabled, "error": server.config_error}
    where = (
        {"command": server.command, "args": [_mask_secrets(argument, server, context) for argument in server.args]}
        if server.command is not None
        else {"url": _mask_secrets(server.url or "", server, context)}
    )
    return {
        "name": server.name,
        "transport": server.transport,
        **where,
        "enabled": server.enabled,
        "authorization_required": _needs_login(server, context),
    }


def _needs_login(server: McpServer, context: McpCommandContext) -> bool:
    return _uses_oauth(server) and not has_tokens(context.share, _resolve_url(server, context))


@_report_errors
def show_server(name: str) -> int:
    """Show the entry of a server as JSON, with every value hidden that may be a secret."""
    place = read_command_context()
    entry = _find_entry(name, read_document(place.config_path))
    server = parse_server(name, entry)
    shown = _hide_secret_values(cast(dict[str, Any], entry)) if isinstance(entry, dict) else HIDDEN
    _print_line(_mask_secrets(json.dumps(shown, indent=2, ensure_ascii=False), server, place))
    return 0


def _hide_secret_values(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key in _SECRET_FREE_KEYS else _hide_value(value) for key, value in entry.items()}


def _hide_value(value: Any) -> Any:
    """Names stay, and what only says where the secret is: `oauth`, `${VARIABLE}`."""
    if isinstance(value, dict):
        return {key: _hide_value(inner) for key, inner in cast(dict[str, Any], value).items()}
    harmless = value == "oauth" or (isinstance(value, str) and is_reference(value))
    return value if harmless else HIDDEN


# --- logins ----------------------------------------------------------------------------------------------------


@_report_errors
def reset_auth(name: str) -> int:
    """Forget the login at a server."""
    place = read_command_context()
    server = _load_remote_server(name, place)
    try:
        clear_tokens(place.share, _resolve_url(server, place))
    except OSError as error:
        raise McpCommandError(f"Cannot remove the OAuth tokens of '{name}': {error.strerror}.") from None
    _print_line(f"OAuth tokens cleared for '{name}'.")
    return 0


@_report_errors
def log_in_at_server(name: str) -> int:
    """Log in at a server, in the user's browser."""
    from kimi.interfaces.bootstrap.mcp_connect import authorize

    place = read_command_context()
    server = _load_remote_server(name, place)
    if not _uses_oauth(server):
        raise McpCommandError(f"MCP server '{name}' does not use OAuth. Add with --auth oauth.")
    return authorize(server, place.share, _print_line)


@_report_errors
def try_server(name: str, as_json: bool) -> int:
    """Connect to a server and show its tools."""
    from kimi.interfaces.bootstrap.mcp_connect import try_connection

    place = read_command_context()
    return try_connection(_load_server(name, place), place.share, as_json, _print_line)


# --- common ----------------------------------------------------------------------------------------------------


def _load_server(name: str, context: McpCommandContext) -> McpServer:
    return parse_server(name, _find_entry(name, read_document(context.config_path)))


def _find_entry(name: str, document: dict[str, Any]) -> Any:
    """The entry of a server, which may be of any kind. Raises Refused: there is none."""
    found = ensure_server_entries(document)
    if name not in found:
        raise McpCommandError(f"MCP server '{name}' not found.")
    return found[name]


def _load_remote_server(name: str, context: McpCommandContext) -> McpServer:
    server = _load_server(name, context)
    if server.config_error is not None:
        raise McpCommandError(f"MCP server '{name}' cannot be used. {server.config_error}")
    if server.url is None:
        raise McpCommandError(f"MCP server '{name}' is not a remote server.")
    return server


def _uses_oauth(server: McpServer) -> bool:
    return server.url is not None and server.auth == "oauth"


def _resolve_url(server: McpServer, context: McpCommandContext) -> str:
    """The URL of a remote server, with the environment put in if it has what the URL names."""
    url = server.url or ""
    return expand_text(url, context.environ) or url


def _mask_secrets(text: str, server: McpServer, context: McpCommandContext) -> str:
    """`text` without the secrets of the server, the longest first: one may be part of another."""
    for secret in sorted(find_server_secrets(server, context.environ), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _print_line(text: str) -> None:
    """Write a line to stdout at once. What its encoding lacks is escaped."""
    sys.stdout.buffer.write(f"{text}\n".encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
