"""Logins at MCP servers, stored the way the library stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kimi.infrastructure.mcp.fastmcp_import import load_fastmcp
from kimi.infrastructure.mcp.oauth.logins import oauth_directory

load_fastmcp()

from fastmcp.client.auth.oauth import TokenStorageAdapter  # noqa: E402
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken  # noqa: E402

from kimi.infrastructure.mcp.oauth.client import open_token_store  # noqa: E402

CLIENT: dict[str, Any] = {"client_id": "the-client", "redirect_uris": ["http://localhost:1/callback"]}


def stored_login(share: str, url: str) -> TokenStorageAdapter:
    """Return the library's own adapter for a login."""
    directory = Path(oauth_directory(share))
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    return TokenStorageAdapter(open_token_store(str(directory)), url.rstrip("/"))


async def log_in(
    share: str, url: str, access: str, refresh: str | None = None, expires_at: float | None = None
) -> None:
    """Store a login as the library does. It expires at `expires_at` (Unix seconds), by default in an hour."""
    stored = stored_login(share, url)
    token = OAuthToken(access_token=access, token_type="Bearer", expires_in=3600, refresh_token=refresh)
    await stored.set_tokens(token)
    await stored.set_client_info(OAuthClientInformationFull.model_validate(CLIENT))
    if expires_at is not None:
        entry: dict[str, Any] = {"expires_at": expires_at}
        key = f"{url.rstrip('/')}/token_expiry"
        await open_token_store(oauth_directory(share)).put(key=key, value=entry, collection="mcp-oauth-token-expiry")
