"""Use-cases for the MCP servers of the user: add, remove, enable, find, remove a login (tools spec 4.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias, cast

from kimi.application.settings.settings import McpServer
from kimi.domain.errors import KimiError

McpTransport: TypeAlias = Literal["stdio", "http", "sse"]

McpEntries: TypeAlias = dict[str, Any]
"""Servers by name, each as parsed JSON of the file."""


class McpCommandError(KimiError):
    """A command of `kimi mcp` cannot be carried out; the text says why."""


class McpConfiguration(Protocol):
    """The file `mcp.json` at `path`. Reading it raises UsageError when it cannot be used (R-19)."""

    @property
    def path(self) -> str: ...

    def read(self) -> McpEntries:
        """Return the entries; empty when there is no file."""
        ...

    def edit(self) -> AbstractContextManager[McpEntries]:
        """Yield the entries for changes, and write them when the block ends without an error.

        Other processes that edit the file wait meanwhile. Raises ConfigError when the file cannot be written.
        """
        ...

    def parse(self, name: str, entry: object) -> McpServer:
        """Return the server that an entry describes. An invalid entry does not raise: it sets `config_error`."""
        ...


class McpLogins(Protocol):
    """The stored logins of remote servers."""

    def has_login(self, server: McpServer) -> bool:
        """Whether there is a login, which may have expired. Does not use the network."""
        ...

    def forget(self, server: McpServer) -> None:
        """Remove the login. Raises OSError."""
        ...


# --- changing the file -----------------------------------------------------------------------------------------


def add_server(configuration: McpConfiguration, name: str, entry: Mapping[str, Any]) -> None:
    """Store a server, which must be usable; it replaces a server of the same name."""
    if not name.strip():
        raise McpCommandError("Give the server a name.")
    if (reason := configuration.parse(name, entry).config_error) is not None:
        raise McpCommandError(f"Nothing was added: {reason}")
    with configuration.edit() as entries:
        entries[name] = entry


def remove_server(configuration: McpConfiguration, name: str) -> None:
    """Delete a server from the file."""
    with configuration.edit() as entries:
        find_entry(entries, name)
        del entries[name]


def set_server_enabled(configuration: McpConfiguration, name: str, enabled: bool) -> None:
    """Enable a server for sessions, or disable it but keep it in the file."""
    with configuration.edit() as entries:
        entry = find_entry(entries, name)
        if not isinstance(entry, dict):
            raise McpCommandError(f"The entry of MCP server '{name}' is not an object; add it anew.")
        table = cast(dict[str, Any], entry)
        for key in ("enabled", "disabled"):
            table.pop(key, None)
        if not enabled:
            table["enabled"] = False


# --- a new entry -----------------------------------------------------------------------------------------------


def build_stdio_entry(
    targets: Sequence[str], env: Sequence[str], headers: Sequence[str], auth: str | None
) -> dict[str, Any]:
    """Return the entry of a server that is a process: `targets` is its command line, `env` holds KEY=VALUE.

    Raises McpCommandError for options of another transport, a missing command, or a variable of another form.
    """
    if not targets:
        raise McpCommandError("For stdio transport, provide the command to start the MCP server after `--`.")
    if headers:
        raise McpCommandError("--header is only valid for http transport.")
    if auth is not None:
        raise McpCommandError("--auth is only valid for http transport.")
    entry: dict[str, Any] = {"command": targets[0], "args": list(targets[1:])}
    return entry | ({"env": dict(_parse_pair(text, "=", "env") for text in env)} if env else {})


def build_remote_entry(
    targets: Sequence[str], transport: McpTransport, env: Sequence[str], headers: Sequence[str], auth: str | None
) -> dict[str, Any]:
    """Return the entry of a server at a URL, the only one of `targets`; `headers` holds KEY:VALUE.

    Raises McpCommandError for options of another transport, no URL or several, or a header of another form.
    """
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


# --- finding a server ------------------------------------------------------------------------------------------


def list_servers(configuration: McpConfiguration) -> Iterator[McpServer]:
    """Yield every server of the file, also those that cannot be used."""
    for name, entry in configuration.read().items():
        yield configuration.parse(name, entry)


def find_entry(entries: McpEntries, name: str) -> Any:
    """Return the entry of a server, of whatever type. Raises McpCommandError when there is none."""
    if name not in entries:
        raise McpCommandError(f"MCP server '{name}' not found.")
    return entries[name]


def find_server(configuration: McpConfiguration, name: str) -> McpServer:
    """Return a server of the file, also an unusable one. Raises McpCommandError when there is none."""
    return configuration.parse(name, find_entry(configuration.read(), name))


def find_remote_server(configuration: McpConfiguration, name: str) -> McpServer:
    """Return a server at a URL. Raises McpCommandError when the server has another transport or cannot be used."""
    server = find_server(configuration, name)
    if server.config_error is not None:
        raise McpCommandError(f"MCP server '{name}' cannot be used. {server.config_error}")
    if server.url is None:
        raise McpCommandError(f"MCP server '{name}' is not a remote server.")
    return server


# --- logins ----------------------------------------------------------------------------------------------------


def find_login_server(configuration: McpConfiguration, name: str) -> McpServer:
    """Return a remote server that supports logins. Raises McpCommandError when this server does not."""
    server = find_remote_server(configuration, name)
    if not _uses_oauth(server):
        raise McpCommandError(f"MCP server '{name}' does not use OAuth. Add with --auth oauth.")
    return server


def needs_login(server: McpServer, logins: McpLogins) -> bool:
    """Whether the user must log in before sessions can use the server."""
    return _uses_oauth(server) and not logins.has_login(server)


def forget_login(configuration: McpConfiguration, name: str, logins: McpLogins) -> None:
    """Remove the login at a remote server. Raises McpCommandError when there is no such server, or the disk fails."""
    server = find_remote_server(configuration, name)
    try:
        logins.forget(server)
    except OSError as error:
        raise McpCommandError(f"Cannot remove the OAuth tokens of '{name}': {error.strerror}.") from None


def _uses_oauth(server: McpServer) -> bool:
    return server.url is not None and server.auth == "oauth"
