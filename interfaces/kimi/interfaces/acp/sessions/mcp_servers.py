"""The MCP servers that a client sends with a session, as settings (acp spec 4.4).

The raw entries are read: the protocol's library drops those that are incomplete without a word.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject

logger = logging.getLogger(__name__)


class BadMcpServer(ValueError):
    """An entry that cannot be used; the text names it and what is wrong. It never holds a value of the entry."""


def mcp_servers(raw: object, cwd: str) -> tuple[McpServer, ...]:
    """The servers in `mcpServers`; none when it is absent or null. Programs start in `cwd`.

    Of entries with the same name the last counts. Values stand for themselves: variables of this process are not put
    in. Raises BadMcpServer.
    """
    if raw is None or raw == {}:  # an empty table of Lua may be written either way
        return ()
    if not isinstance(raw, list):
        raise BadMcpServer("mcpServers: must be a list")
    servers: dict[str, McpServer] = {}
    for index, entry in enumerate(cast("list[object]", raw)):
        server = _server(entry, f"mcpServers[{index}]", cwd)
        if server.name in servers:
            logger.warning("the client names the MCP server %r twice; the last one counts", server.name)
        servers[server.name] = server
    return tuple(servers.values())


def _server(entry: object, place: str, cwd: str) -> McpServer:
    if not isinstance(entry, dict):
        raise BadMcpServer(f"{place}: must be an object")
    source = cast("dict[str, Any]", entry)
    name = source.get("name")
    if not isinstance(name, str) or not name.strip():
        raise BadMcpServer(f"{place}.name: must be a string that is not empty")
    place = f"{place} ({name[:80]})"
    match source.get("type", "stdio"):
        case "stdio":
            return _stdio(source, name, place, cwd)
        case "http" | "sse" as transport:
            url, headers = _text(source, "url", place), _pairs(source, "headers", place)
            return McpServer(name=name, transport=transport, url=literal(url), headers=headers)
        case kind:
            raise BadMcpServer(f"{place}: the transport {str(kind)[:40]!r} is not supported; use stdio, http or sse")


def _stdio(source: JsonObject, name: str, place: str, cwd: str) -> McpServer:
    args: Any = source.get("args")
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in cast("list[object]", args)):
        raise BadMcpServer(f"{place}.args: must be a list of strings")
    return McpServer(
        name=name,
        transport="stdio",
        command=literal(_text(source, "command", place)),
        args=tuple(map(literal, cast("list[str]", args))),
        env=_pairs(source, "env", place),
        cwd=literal(cwd),
    )


def _text(source: JsonObject, key: str, place: str) -> str:
    value = source.get(key)
    if not isinstance(value, str) or not value:
        raise BadMcpServer(f"{place}.{key}: must be a string that is not empty")
    return value


def _pairs(source: JsonObject, key: str, place: str) -> dict[str, str]:
    """A list of `{name, value}` as a mapping; of equal names the last counts."""
    value: Any = source.get(key)
    if not isinstance(value, list):
        raise BadMcpServer(f"{place}.{key}: must be a list of objects with name and value")
    return dict(_pair(item, f"{place}.{key}[{index}]") for index, item in enumerate(cast("list[object]", value)))


def _pair(item: object, place: str) -> tuple[str, str]:
    source: JsonObject = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    name, value = source.get("name"), source.get("value")
    if not isinstance(name, str) or not name or not isinstance(value, str):
        raise BadMcpServer(f"{place}: must have name and value, both strings")
    return name, literal(value)


def literal(text: str) -> str:
    """`text` as a setting that means exactly it.

    Settings know no escape for `${VAR}`, but a default: the variable that there is not gives the dollar.
    """
    return text.replace("${", "${KIMI_NO_SUCH_VARIABLE:-$}{")
