"""The parts of an MCP server's configuration that must never be shown (tools spec 4.1; R-48)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kimi.application.settings.settings import McpServer
from kimi.infrastructure.mcp.config.variables import expand_text, is_reference
from kimi.infrastructure.mcp.oauth.logins import list_login_secrets

_SHORTEST_SECRET = 6
"""Shorter values are switches and numbers; masking them would make texts unreadable."""
_SECRET_NAME = re.compile(r"key|token|secret|password|auth|credential|signature", re.IGNORECASE)
"""Matches names in the query of a URL."""


def find_server_secrets(server: McpServer, environ: Mapping[str, str], share_dir: str | None = None) -> Iterator[str]:
    """Yield the headers, variables, token, password and URL keys of a server, as written and with variables expanded.

    With `share_dir`, also its stored login, which is read from the disk.
    """
    for text in _find_secret_texts(server):
        if not is_reference(text):
            yield text
        value = expand_text(text, environ)
        if value is not None and len(value) >= _SHORTEST_SECRET:
            yield value
            rest = value.partition(" ")[2]
            if len(rest) >= _SHORTEST_SECRET:  # "Bearer X": X alone is a secret as well
                yield rest
    url = expand_text(server.url, environ) if server.url is not None and server.auth == "oauth" else None
    if share_dir is not None and url is not None:
        yield from list_login_secrets(share_dir, url)


def _find_secret_texts(server: McpServer) -> Iterator[str]:
    token = "" if server.auth in (None, "oauth") else server.auth
    values = (*server.headers.values(), *server.env.values(), *_find_url_secrets(server.url or ""), token)
    yield from (value for value in values if len(value) >= _SHORTEST_SECRET)


def _find_url_secrets(url: str) -> Iterator[str]:
    """Yield the password and the values in the query whose names look like keys: some servers take theirs there."""
    rest = url.partition("://")[2]
    credentials, at, _ = rest.partition("/")[0].rpartition("@")
    if at:
        yield credentials.partition(":")[2] or credentials
    query = rest.partition("#")[0].partition("?")[2]
    for name, _, value in (pair.partition("=") for pair in query.split("&")):
        if _SECRET_NAME.search(name):
            yield value
