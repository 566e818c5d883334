"""Where the MCP servers of a conversation work and what they may know of us."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kimi.application.ports import CheckSchema
from kimi.application.settings.settings import McpServer
from kimi.infrastructure.mcp.config.server_secrets import find_server_secrets
from kimi.infrastructure.mcp.transport.server_log import ServerLog
from kimi.infrastructure.workspace.processes import LocalProcess


@dataclass(frozen=True, slots=True)
class McpHostContext:
    """Directories and environment of servers; who we are for them.

    `roots` gives the directories that servers are told of. `hide` gets what must not be seen in a log. `running`
    holds the processes of servers that live now.
    """

    work_dir: str
    share_dir: str
    environ: Mapping[str, str]
    version: str
    check_schema: CheckSchema
    list_roots: Callable[[], Sequence[str]]
    hide_secrets: Callable[[Collection[str]], None]
    running_processes: set[LocalProcess] = field(default_factory=set[LocalProcess])

    def create_log(self, server: McpServer) -> ServerLog:
        """Where a server's own output goes."""
        return ServerLog(os.path.join(self.share_dir, "logs", "mcp"), server.name, self.find_secrets(server))

    def find_secrets(self, server: McpServer) -> frozenset[str]:
        """What of a server's configuration must not be seen anywhere."""
        return frozenset(find_server_secrets(server, self.environ))
