"""The location and settings of a session: directories, MCP servers, current settings (acp spec 4.3, 4.4)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kimi.application.settings.settings import McpServer, Settings
from kimi.interfaces.acp.sessions.mcp_servers import InvalidMcpServer, parse_mcp_servers
from kimi.interfaces.acp.transport.errors import invalid_params


@dataclass(frozen=True, slots=True)
class SessionLocation:
    """The work directory of a session, its further roots, and the MCP servers that the client sent."""

    cwd: str
    additional_dirs: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    stored_work_dir: str | None = None
    """The work directory under which the session is stored, if it has moved since."""


def parse_location(params: Mapping[str, Any]) -> SessionLocation:
    """Parse the location in the parameters of new, load, resume and fork. Raises RpcError (A-35, A-107)."""
    cwd = _parse_directory(params.get("cwd"), "cwd")
    given: object = params.get("additionalDirectories")
    if given is not None and not isinstance(given, list):
        raise invalid_params("additionalDirectories: must be a list of strings")
    roots = [_parse_directory(path, "additionalDirectories") for path in cast("Sequence[object]", given or ())]
    try:
        servers = parse_mcp_servers(params.get("mcpServers"), cwd)
    except InvalidMcpServer as error:
        raise invalid_params(str(error)) from None
    return SessionLocation(cwd, tuple(dict.fromkeys(roots)), servers)


def _parse_directory(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise invalid_params(f"{name}: must be a string")
    if "\0" in value or not os.path.isabs(value):
        raise invalid_params(f"{name} must be an absolute path", cwd=value)
    path = os.path.abspath(value)
    if not os.path.isdir(path):
        raise invalid_params(f"{name} does not exist", cwd=value)
    return path


def derive_settings(settings: Settings, location: SessionLocation) -> Settings:
    """Return the settings of a session: those of the process, with its directories, and its servers first."""
    mine = {server.name for server in location.mcp_servers}
    servers = (*(server for server in settings.mcp.servers if server.name not in mine), *location.mcp_servers)
    mcp = settings.mcp.model_copy(update={"servers": servers})
    roots = tuple(dict.fromkeys((*settings.additional_dirs, *location.additional_dirs)))
    return settings.model_copy(update={"work_dir": location.cwd, "additional_dirs": roots, "mcp": mcp})
