"""Stored logins by the server that they are for, as the commands of `kimi mcp` ask for them."""

from __future__ import annotations

from collections.abc import Mapping

from kimi.application.settings.settings import McpServer
from kimi.infrastructure.mcp.config.variables import expand_text
from kimi.infrastructure.mcp.oauth.logins import clear_tokens, has_tokens


class StoredMcpLogins:
    """The logins below a share directory. A URL is expanded when the environment has what it names."""

    def __init__(self, share_dir: str, environ: Mapping[str, str]) -> None:
        self._share_dir = share_dir
        self._environ = environ

    def has_login(self, server: McpServer) -> bool:
        """Whether there is a login for the server, which may have expired."""
        return has_tokens(self._share_dir, self._resolve_url(server))

    def forget(self, server: McpServer) -> None:
        """Remove everything that is stored about logins at the server. Raises OSError."""
        clear_tokens(self._share_dir, self._resolve_url(server))

    def _resolve_url(self, server: McpServer) -> str:
        url = server.url or ""
        return expand_text(url, self._environ) or url
