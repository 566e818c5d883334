"""The environment that a conversation offers to its MCP servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kimi.application.ports import CheckSchema
from kimi.application.settings.settings import McpServer
from kimi.infrastructure.mcp.config.server_secrets import find_server_secrets
from kimi.infrastructure.mcp.transport.message_guard import MAX_MESSAGE_BYTES
from kimi.infrastructure.mcp.transport.server_log import ServerLog
from kimi.infrastructure.workspace.processes import LocalProcess


@dataclass(frozen=True, slots=True)
class McpHostContext:
    """Directories, environment and client version for MCP servers.

    `list_roots` returns the directories that servers are told about. `hide_secrets` receives what must not appear in a
    log. `running_processes` holds the processes of servers that are alive now.
    """

    work_dir: str
    share_dir: str
    environ: Mapping[str, str]
    version: str
    check_schema: CheckSchema
    list_roots: Callable[[], Sequence[str]]
    hide_secrets: Callable[[Collection[str]], None]
    max_message_bytes: int = MAX_MESSAGE_BYTES
    running_processes: set[LocalProcess] = field(default_factory=set[LocalProcess])

    def create_log(self, server: McpServer) -> ServerLog:
        """Create the log for a server's own output."""
        return ServerLog(os.path.join(self.share_dir, "logs", "mcp"), server.name, self.find_secrets(server))

    def find_secrets(self, server: McpServer) -> frozenset[str]:
        """Return the parts of a server's configuration that must never be shown."""
        return frozenset(find_server_secrets(server, self.environ))
