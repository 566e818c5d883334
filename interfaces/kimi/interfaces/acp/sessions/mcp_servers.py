"""Parse the MCP servers that a client sends with a session to settings (acp spec 4.4).

This reads the raw entries, because the SDK silently drops incomplete ones.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject

logger = logging.getLogger(__name__)


class InvalidMcpServer(ValueError):
    """An invalid entry; the text names it and what is wrong, and never contains a value of the entry."""


def parse_mcp_servers(raw: object, cwd: str) -> tuple[McpServer, ...]:
    """Return the servers in `mcpServers`; none if it is absent or null. Programs start in `cwd`.

    Of entries with the same name the last counts. Values are literal: variables of this process are not expanded.
    Raises InvalidMcpServer.
    """
    if raw is None or raw == {}:  # clients in Lua may encode an empty list as an object
        return ()
    if not isinstance(raw, list):
        raise InvalidMcpServer("mcpServers: must be a list")
    servers: dict[str, McpServer] = {}
    for index, entry in enumerate(cast("list[object]", raw)):
        server = _parse_server(entry, f"mcpServers[{index}]", cwd)
        if server.name in servers:
            logger.warning("the client names the MCP server %r twice; the last one counts", server.name)
        servers[server.name] = server
    return tuple(servers.values())


def _parse_server(entry: object, field_path: str, cwd: str) -> McpServer:
    if not isinstance(entry, dict):
        raise InvalidMcpServer(f"{field_path}: must be an object")
    source = cast("dict[str, Any]", entry)
    name = source.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidMcpServer(f"{field_path}.name: must be a string that is not empty")
    field_path = f"{field_path} ({name[:80]})"
    match source.get("type", "stdio"):
        case "stdio":
            return _parse_stdio_server(source, name, field_path, cwd)
        case "http" | "sse" as transport:
            url, headers = _require_text(source, "url", field_path), _parse_pairs(source, "headers", field_path)
            return McpServer(name=name, transport=transport, url=escape_variables(url), headers=headers)
        case kind:
            raise InvalidMcpServer(
                f"{field_path}: the transport {str(kind)[:40]!r} is not supported; use stdio, http or sse"
            )


def _parse_stdio_server(source: JsonObject, name: str, field_path: str, cwd: str) -> McpServer:
    args: Any = source.get("args")
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in cast("list[object]", args)):
        raise InvalidMcpServer(f"{field_path}.args: must be a list of strings")
    return McpServer(
        name=name,
        transport="stdio",
        command=escape_variables(_require_text(source, "command", field_path)),
        args=tuple(map(escape_variables, cast("list[str]", args))),
        env=_parse_pairs(source, "env", field_path),
        cwd=escape_variables(cwd),
    )


def _require_text(source: JsonObject, key: str, field_path: str) -> str:
    value = source.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidMcpServer(f"{field_path}.{key}: must be a string that is not empty")
    return value


def _parse_pairs(source: JsonObject, key: str, field_path: str) -> dict[str, str]:
    """Return a list of `{name, value}` as a mapping; of equal names the last counts."""
    value: Any = source.get(key)
    if not isinstance(value, list):
        raise InvalidMcpServer(f"{field_path}.{key}: must be a list of objects with name and value")
    return dict(
        _parse_pair(item, f"{field_path}.{key}[{index}]") for index, item in enumerate(cast("list[object]", value))
    )


def _parse_pair(item: object, field_path: str) -> tuple[str, str]:
    source: JsonObject = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    name, value = source.get("name"), source.get("value")
    if not isinstance(name, str) or not name or not isinstance(value, str):
        raise InvalidMcpServer(f"{field_path}: must have name and value, both strings")
    return name, escape_variables(value)


def escape_variables(text: str) -> str:
    """Return a setting that expands to exactly `text`.

    Settings have no escape for `${VAR}`, but they have defaults: the default of an unset variable yields the dollar.
    """
    return text.replace("${", "${KIMI_NO_SUCH_VARIABLE:-$}{")
