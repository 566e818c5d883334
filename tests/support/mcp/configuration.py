"""A user's MCP configuration and logins in memory, for the use-cases of `kimi mcp`."""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from kimi.application.admin.mcp_configuration import McpEntries
from kimi.application.settings.settings import McpServer


@dataclass
class MemoryMcpConfiguration:
    """Entries in memory. An entry with an `error` cannot be used; that is the reason."""

    entries: McpEntries = field(default_factory=dict[str, Any])
    path: str = "/share/mcp.json"

    def read(self) -> McpEntries:
        return copy.deepcopy(self.entries)

    @contextmanager
    def edit(self) -> Generator[McpEntries, None, None]:
        entries = self.read()
        yield entries
        self.entries = entries

    def parse(self, name: str, entry: object) -> McpServer:
        table = cast(dict[str, Any], entry) if isinstance(entry, dict) else {"error": "no object"}
        if "error" in table:
            return McpServer(name=name, config_error=table["error"])
        return McpServer.model_validate({"name": name, **table})


@dataclass
class MemoryMcpLogins:
    """The names of the servers where the user is logged in."""

    names: set[str] = field(default_factory=set[str])
    error: OSError | None = None

    def has_login(self, server: McpServer) -> bool:
        return server.name in self.names

    def forget(self, server: McpServer) -> None:
        if self.error is not None:
            raise self.error
        self.names.discard(server.name)
