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
from kimi.infrastructure.mcp.config.config import default_file, parse_server
from kimi.infrastructure.mcp.config.document import changing, entries, read_document
from kimi.infrastructure.mcp.config.server_secrets import server_secrets
from kimi.infrastructure.mcp.config.variables import expanded_text, is_reference
from kimi.infrastructure.mcp.oauth.logins import clear_tokens, has_tokens
from kimi.interfaces.process.plain_text import plain_line
from kimi.interfaces.process.startup_errors import write_stderr

Transport: TypeAlias = Literal["stdio", "http", "sse"]
P = ParamSpec("P")

_SHOWN = frozenset(
    {
        *("command", "args", "cwd", "url", "transport", "type", "timeout", "sse_read_timeout", "keep_alive"),
        *("description", "enabled", "disabled", "enabled_tools", "disabled_tools", "required", "connect_timeout_ms"),
        *("approval", "trust_annotations", "subagents"),
    }
)
"""Keys whose values hold no secrets, apart from those that occur elsewhere in the entry."""

HIDDEN = "***"


class Refused(KimiError):
    """A command of `kimi mcp` cannot do what it was asked."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the commands work."""

    share: str
    environ: Mapping[str, str]

    @property
    def file(self) -> str:
        """The file that they read and write."""
        return default_file(self.share)


def here() -> Place:
    """The share directory and the variables of this process."""
    return Place(share_directory(os.environ), os.environ)


def _telling(command: Callable[P, int]) -> Callable[P, int]:
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


@_telling
def add(
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
        entry = _stdio_entry(targets, env, headers, auth)
    else:
        entry = _remote_entry(targets, transport, env, headers, auth)
    if not name.strip():
        raise Refused("Give the server a name.")
    if (reason := parse_server(name, entry).broken) is not None:
        raise Refused(f"Nothing was added: {reason}")
    place = here()
    with changing(place.file) as document:
        entries(document)[name] = entry
    _say(f"Added MCP server '{name}' to {place.file}.")
    return 0


def _stdio_entry(
    targets: Sequence[str], env: Sequence[str], headers: Sequence[str], auth: str | None
) -> dict[str, Any]:
    if not targets:
        raise Refused("For stdio transport, provide the command to start the MCP server after `--`.")
    if headers:
        raise Refused("--header is only valid for http transport.")
    if auth is not None:
        raise Refused("--auth is only valid for http transport.")
    entry: dict[str, Any] = {"command": targets[0], "args": list(targets[1:])}
    return entry | ({"env": dict(_pair(text, "=", "env") for text in env)} if env else {})


def _remote_entry(
    targets: Sequence[str], transport: Transport, env: Sequence[str], headers: Sequence[str], auth: str | None
) -> dict[str, Any]:
    if env:
        raise Refused("--env is only supported for stdio transport.")
    if not targets:
        raise Refused("URL is required for http transport.")
    if len(targets) > 1:
        raise Refused("Multiple targets provided. Supply a single URL for http transport.")
    entry: dict[str, Any] = {"url": targets[0], "transport": transport}
    if headers:
        pairs = (_pair(text, ":", "header") for text in headers)
        entry["headers"] = {key.strip(): value.strip() for key, value in pairs}
    return entry | ({"auth": auth} if auth is not None else {})


def _pair(text: str, separator: str, what: str) -> tuple[str, str]:
    key, found, value = text.partition(separator)
    if not found or not key.strip():
        raise Refused(f"Invalid {what} format: {text} (expected KEY{separator}VALUE).")
    return key, value


@_telling
def remove(name: str) -> int:
    """Delete a server from the file."""
    place = here()
    with changing(place.file) as document:
        _entry(name, document)
        del entries(document)[name]
    _say(f"Removed MCP server '{name}' from {place.file}.")
    return 0


@_telling
def switch(name: str, on: bool) -> int:
    """Let sessions use a server, or leave it in the file unused."""
    place = here()
    with changing(place.file) as document:
        _set_enabled(name, _entry(name, document), on)
    _say(f"{'Enabled' if on else 'Disabled'} MCP server '{name}' in {place.file}.")
    return 0


def _set_enabled(name: str, entry: Any, on: bool) -> None:
    if not isinstance(entry, dict):
        raise Refused(f"The entry of MCP server '{name}' is not an object; add it anew.")
    table = cast(dict[str, Any], entry)
    for key in ("enabled", "disabled"):
        table.pop(key, None)
    if not on:
        table["enabled"] = False


# --- showing ---------------------------------------------------------------------------------------------------


@_telling
def list_servers(as_json: bool) -> int:
    """Show every server of the file."""
    place = here()
    servers = [parse_server(name, entry) for name, entry in entries(read_document(place.file)).items()]
    if as_json:
        _say(json.dumps({"path": place.file, "servers": [_as_json(server, place) for server in servers]}))
        return 0
    _say(f"MCP config file: {place.file}")
    for server in servers:
        _say(f"  {_line(server, place)}")
    if not servers:
        _say("No MCP servers configured.")
    return 0


def _line(server: McpServer, place: Place) -> str:
    name = plain_line(server.name)
    if server.broken is not None:
        return f"{name} [cannot be used: {server.broken}]"
    target = " ".join((server.command, *server.args)) if server.command is not None else server.url or ""
    wanted = f" [authorization required - run: kimi mcp auth {name}]" if _needs_login(server, place) else ""
    disabled = "" if server.enabled else " [disabled]"
    return f"{name} ({server.transport}): {plain_line(_masked(target, server, place), 10_000)}{wanted}{disabled}"


def _as_json(server: McpServer, place: Place) -> dict[str, Any]:
    if server.broken is not None:
        return {"name": server.name, "enabled": server.enabled, "error": server.broken}
    where = (
        {"command": server.command, "args": [_masked(argument, server, place) for argument in server.args]}
        if server.command is not None
        else {"url": _masked(server.url or "", server, place)}
    )
    return {
        "name": server.name,
        "transport": server.transport,
        **where,
        "enabled": server.enabled,
        "authorization_required": _needs_login(server, place),
    }


def _needs_login(server: McpServer, place: Place) -> bool:
    return _uses_oauth(server) and not has_tokens(place.share, _address(server, place))


@_telling
def get(name: str) -> int:
    """Show the entry of a server as JSON, with every value hidden that may be a secret."""
    place = here()
    entry = _entry(name, read_document(place.file))
    server = parse_server(name, entry)
    shown = _without_secrets(cast(dict[str, Any], entry)) if isinstance(entry, dict) else HIDDEN
    _say(_masked(json.dumps(shown, indent=2, ensure_ascii=False), server, place))
    return 0


def _without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key in _SHOWN else _hidden(value) for key, value in entry.items()}


def _hidden(value: Any) -> Any:
    """Names stay, and what only says where the secret is: `oauth`, `${VARIABLE}`."""
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in cast(dict[str, Any], value).items()}
    harmless = value == "oauth" or (isinstance(value, str) and is_reference(value))
    return value if harmless else HIDDEN


# --- logins ----------------------------------------------------------------------------------------------------


@_telling
def reset_auth(name: str) -> int:
    """Forget the login at a server."""
    place = here()
    server = _remote_server(name, place)
    try:
        clear_tokens(place.share, _address(server, place))
    except OSError as error:
        raise Refused(f"Cannot remove the OAuth tokens of '{name}': {error.strerror}.") from None
    _say(f"OAuth tokens cleared for '{name}'.")
    return 0


@_telling
def auth(name: str) -> int:
    """Log in at a server, in the user's browser."""
    from kimi.interfaces.bootstrap.mcp_connect import authorize

    place = here()
    server = _remote_server(name, place)
    if not _uses_oauth(server):
        raise Refused(f"MCP server '{name}' does not use OAuth. Add with --auth oauth.")
    return authorize(server, place.share, _say)


@_telling
def test(name: str, as_json: bool) -> int:
    """Connect to a server and show its tools."""
    from kimi.interfaces.bootstrap.mcp_connect import try_out

    place = here()
    return try_out(_server(name, place), place.share, as_json, _say)


# --- common ----------------------------------------------------------------------------------------------------


def _server(name: str, place: Place) -> McpServer:
    return parse_server(name, _entry(name, read_document(place.file)))


def _entry(name: str, document: dict[str, Any]) -> Any:
    """The entry of a server, which may be of any kind. Raises Refused: there is none."""
    found = entries(document)
    if name not in found:
        raise Refused(f"MCP server '{name}' not found.")
    return found[name]


def _remote_server(name: str, place: Place) -> McpServer:
    server = _server(name, place)
    if server.broken is not None:
        raise Refused(f"MCP server '{name}' cannot be used. {server.broken}")
    if server.url is None:
        raise Refused(f"MCP server '{name}' is not a remote server.")
    return server


def _uses_oauth(server: McpServer) -> bool:
    return server.url is not None and server.auth == "oauth"


def _address(server: McpServer, place: Place) -> str:
    """The URL of a remote server, with the environment put in if it has what the URL names."""
    url = server.url or ""
    return expanded_text(url, place.environ) or url


def _masked(text: str, server: McpServer, place: Place) -> str:
    """`text` without the secrets of the server, the longest first: one may be part of another."""
    for secret in sorted(server_secrets(server, place.environ), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _say(text: str) -> None:
    """Write a line to stdout at once. What its encoding lacks is escaped."""
    sys.stdout.buffer.write(f"{text}\n".encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
