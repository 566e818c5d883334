"""Parses the configuration of MCP servers: the text of a file or an option becomes `McpServer`s (tools spec 4.1).

A fault in one entry is kept in the entry (`config_error`) and affects only that server; a text that holds no servers at
all is an error. Errors name keys and rules, never values, because those may be secrets.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import McpServer
from kimi.domain.errors import ConfigError, UsageError
from kimi.infrastructure.config.text_file import read_text

_log = logging.getLogger("kimi.settings")

_TRANSPORT_BY_NAME = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}
_UNSUPPORTED_KEYS = ("tools", "include_tags", "exclude_tags")
"""Keys of fastmcp that rewrite what a server offers; ignoring them silently would offer too much."""

_UNCHANGED_KEYS = (
    *("command", "args", "env", "cwd", "url", "headers", "auth", "enabled_tools", "disabled_tools"),
    *("required", "connect_timeout_ms", "approval", "trust_annotations", "subagents"),
)
_RENAMED_KEYS = {"timeout": "timeout_ms", "sse_read_timeout": "sse_read_timeout_s"}


# --- which servers there are -----------------------------------------------------------------------------------


def default_config_path(share_dir: str) -> str:
    """Return the path of the user's servers, unless the command line names other files."""
    return os.path.join(share_dir, "mcp.json")


def load_configured_servers(share_dir: str, flags: Flags) -> tuple[McpServer, ...]:
    """Load the servers of `--mcp-config-file`s, else of `mcp.json`, then those of `--mcp-config`.

    Of servers with the same name the last one wins.

    Raises:
        UsageError: a text is not JSON (exit 2).
        ConfigError: a file cannot be read, or a text has the wrong shape (exit 1).
    """
    return merge_servers([*_load_files(share_dir, flags), *(_parse_option(text) for text in flags.mcp_configs)])


def merge_servers(groups: Iterable[Iterable[McpServer]]) -> tuple[McpServer, ...]:
    """Merge all servers; a later one replaces an earlier one with the same name."""
    return tuple({server.name: server for group in groups for server in group}.values())


def _load_files(share_dir: str, flags: Flags) -> Iterator[list[McpServer]]:
    for path in flags.mcp_config_files:
        yield parse_servers(parse_json(_read_config_text(path), f" ({path})", "--mcp-config-file"), path)
    default = default_config_path(share_dir)
    if not flags.mcp_config_files and os.path.exists(default):
        yield parse_servers(parse_json(_read_config_text(default), f" ({default})"), default)


def _parse_option(text: str) -> list[McpServer]:
    return parse_servers(parse_json(text, hint="--mcp-config"), "--mcp-config")


def _read_config_text(path: str) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"Invalid MCP config: {path} is not UTF-8 text at byte {error.start}.") from None
    except OSError as error:
        raise ConfigError(f"Cannot read the MCP config file {path}: {error.strerror}.") from None


def parse_json(text: str, where: str = "", hint: str | None = None) -> Any:
    """Parse `text`; `where` is appended to the message of an error, `hint` is the option that it is about.

    Raises:
        UsageError: it is not JSON; the text `Invalid JSON: ` is that of the specification.
    """
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"Invalid JSON: {error}{where}", hint) from None


# --- entries ---------------------------------------------------------------------------------------------------


def find_server_entries(raw: Any, where: str) -> dict[str, Any]:
    """Return the entries in a parsed text by name.

    They are those below `mcpServers`, else those at its root that look like servers. Other objects hold no servers,
    which is logged; `where` names the text.

    Raises:
        ConfigError: the text is not an object, or `mcpServers` is not one.
    """
    if not isinstance(raw, dict):
        raise ConfigError(f"Invalid MCP config: {where} must hold an object with 'mcpServers'.")
    document = cast(dict[str, Any], raw)
    if "mcpServers" in document:
        entries = document["mcpServers"]
        if not isinstance(entries, dict):
            raise ConfigError(f"Invalid MCP config: 'mcpServers' in {where} must be an object of servers by name.")
        return cast(dict[str, Any], entries)
    at_root = {name: entry for name, entry in document.items() if _is_server_entry(entry)}
    if document and not at_root:
        _log.warning("%s has no 'mcpServers'; no MCP server is taken from it", where)
    return at_root


def _is_server_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and ("command" in entry or "url" in entry)


def parse_servers(raw: Any, where: str) -> list[McpServer]:
    """Parse every server in a text; unusable ones have the reason in `config_error`.

    Raises:
        ConfigError: the text holds no servers (see `find_server_entries`).
    """
    return [parse_server(name, entry) for name, entry in find_server_entries(raw, where).items()]


def parse_server(name: str, entry: Any) -> McpServer:
    """Parse the server in `entry`. Never raises: a fault is stored in `config_error`."""
    from pydantic import ValidationError

    if not isinstance(entry, dict):
        return McpServer(name=name, config_error="The entry must be an object.")
    table = {key: value for key, value in cast(dict[str, Any], entry).items() if value is not None}
    reason = _find_conflict(table)
    if reason is None:
        try:
            return McpServer.model_validate(_build_fields(name, table))
        except ValidationError as error:
            reason = _format_validation_error(error)
    return McpServer(name=name, config_error=reason, enabled=_is_enabled(table), required=table.get("required") is True)


def _build_fields(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    taken = {key: table[key] for key in _UNCHANGED_KEYS if key in table}
    renamed = {ours: table[key] for key, ours in _RENAMED_KEYS.items() if key in table}
    enabled = table.get("enabled", True) if _is_enabled(table) else False
    return {**taken, **renamed, "name": name, "transport": _choose_transport(table), "enabled": enabled}


def _is_enabled(table: Mapping[str, Any]) -> bool:
    return table.get("enabled") is not False and table.get("disabled") is not True


def _choose_transport(table: Mapping[str, Any]) -> str:
    named = table.get("transport", table.get("type"))
    if named is not None:
        return _TRANSPORT_BY_NAME[named]
    if "command" in table:
        return "stdio"
    return "sse" if "sse" in _url_path(table["url"]).split("/") else "http"


def _url_path(url: str) -> str:
    """Return the path of a URL, which may begin with a variable."""
    rest = url.partition("://")[2] or url
    return rest.partition("#")[0].partition("?")[0].partition("/")[2]


def _find_conflict(table: Mapping[str, Any]) -> str | None:
    """Return why the keys contradict each other, or None."""
    named = table.get("transport", table.get("type"))
    if "command" in table and "url" in table:
        return "It has both 'command' and 'url'; keep one of them."
    if not table.get("command") and not isinstance(table.get("url"), str):
        return "It needs a 'command' (stdio) or a 'url' (http, sse)."
    if named is not None and named not in list(_TRANSPORT_BY_NAME):
        return "'transport' must be one of stdio, http, streamable-http, sse."
    if named is not None and (_TRANSPORT_BY_NAME[named] == "stdio") != ("command" in table):
        return "'transport' stdio goes with a 'command', any other with a 'url'."
    if "url" in table and not table["url"].lower().startswith(("http://", "https://", "${")):
        return "'url' must begin with http:// or https://."
    transform = next((key for key in _UNSUPPORTED_KEYS if table.get(key)), None)
    if transform is not None:
        return f"'{transform}' is not supported; choose tools with 'enabled_tools' and 'disabled_tools'."
    return None


def _format_validation_error(error: Any) -> str:
    from kimi.infrastructure.config.schema import format_rule  # start-up time

    details = error.errors(include_url=False, include_context=False, include_input=False)
    rules = "; ".join(f"{_format_location(item['loc'])}: {format_rule(item['msg'])}" for item in details)
    return f"{rules}."


def _format_location(path: Iterable[object]) -> str:
    """Return the location within the entry, by the keys that the entry uses."""
    written = {ours: key for key, ours in _RENAMED_KEYS.items()}
    return ".".join(written.get(part, part) for part in map(str, path))
