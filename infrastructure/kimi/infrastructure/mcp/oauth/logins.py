"""Stored logins of remote MCP servers, below `mcp-oauth` in the share directory (tools spec 4.4, 6.4).

The files are those of fastmcp's file store, in the layout that kimi-cli 1.43 and later use, so that its logins work
here. Finding or removing a login needs only the files; the library is loaded for a login itself.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from kimi.infrastructure.mcp.fastmcp_import import load_fastmcp

if TYPE_CHECKING:
    from kimi.infrastructure.mcp.oauth.client import BrowserLogin, StoredLogin

_COLLECTION_BY_PART = {
    "tokens": "mcp_oauth_token",
    "client_info": "mcp_oauth_client_info",
    "token_expiry": "mcp_oauth_token_expiry",
}
"""The collections by the last part of a key, which is also how the names of their directories begin."""


def oauth_directory(share_dir: str) -> str:
    """Return the directory of the logins."""
    return os.path.join(share_dir, "mcp-oauth")


def storage_key(server_url: str) -> str:
    """Return the key of this server's logins: its URL without slashes at the end."""
    return server_url.rstrip("/")


def has_tokens(share_dir: str, server_url: str) -> bool:
    """Return whether there is a stored login for this server.

    Its token may have expired; nothing is sent over the network.
    """
    return any(_read_stored_value(path).get("access_token") for path in _find_files(share_dir, server_url, "tokens"))


def list_login_secrets(share_dir: str, server_url: str) -> Iterator[str]:
    """Yield the parts of a stored login that must never be shown."""
    for part in ("tokens", "client_info"):
        for path in _find_files(share_dir, server_url, part):
            value = _read_stored_value(path)
            found = (value.get(key) for key in ("access_token", "refresh_token", "client_secret"))
            yield from (secret for secret in found if isinstance(secret, str) and secret)


def clear_tokens(share_dir: str, server_url: str) -> None:
    """Remove everything that is stored about logins at this server. Raises OSError."""
    for part in _COLLECTION_BY_PART:
        for path in _find_files(share_dir, server_url, part):
            with suppress(FileNotFoundError):
                os.unlink(path)


def load_stored_login(share_dir: str, server_url: str) -> StoredLogin | None:
    """Load the stored login of a server, or return None, without network traffic, if there is none.

    The login renews itself when it has expired. It never opens a browser: if the server requires the user, the request
    fails and `is_rejected` is True. Pass it as the `auth` of a transport, one for each connection.
    """
    if not has_tokens(share_dir, server_url):
        return None
    load_fastmcp()
    from kimi.infrastructure.mcp.oauth.client import StoredLogin

    return StoredLogin(storage_key(server_url), _make_private_directory(share_dir))


def create_browser_login(share_dir: str, server_url: str, show_address: Callable[[str], None]) -> BrowserLogin:
    """Create a login that opens a browser if needed and stores the result; only for `kimi mcp auth`.

    `show_address` receives the address that the browser is sent to.
    """
    load_fastmcp()
    from kimi.infrastructure.mcp.oauth.client import BrowserLogin

    directory = _make_private_directory(share_dir)
    return BrowserLogin(storage_key(server_url), directory, show_address, _find_registered_port(share_dir, server_url))


def _find_registered_port(share_dir: str, server_url: str) -> int | None:
    """Return the port of the client registration: the server may send the browser to no other. None if it is taken."""
    for path in _find_files(share_dir, server_url, "client_info"):
        for address in _read_stored_value(path).get("redirect_uris") or ():
            with suppress(ValueError, OSError):
                port = urlsplit(str(address)).port
                if port is not None:
                    socket.create_server(("localhost", port)).close()
                    return port
    return None


def _make_private_directory(share_dir: str) -> str:
    directory = oauth_directory(share_dir)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    os.chmod(directory, 0o700)
    _remove_moved_notes(directory)
    return directory


def _remove_moved_notes(directory: str) -> None:
    """Remove wrong notes of the library about the location of its files.

    They are wrong if the share directory was moved, or has another path in a container. The library would refuse to
    read the files; without a note it writes a new one.
    """
    here = os.path.realpath(directory)
    for note in glob.glob(os.path.join(glob.escape(directory), "S_*-info.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            with open(note, encoding="utf-8") as file:
                named = os.path.realpath(json.load(file)["directory"])
            if os.path.dirname(named) != here:
                os.unlink(note)


def _find_files(share_dir: str, server_url: str, part: str) -> Iterator[str]:
    """Yield the files of one key. Their names end in a hash of the key, which no version shortens."""
    key = f"{storage_key(server_url)}/{part}"
    ending = f"-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
    directories = glob.glob(os.path.join(glob.escape(oauth_directory(share_dir)), f"S_{_COLLECTION_BY_PART[part]}-*"))
    for directory in directories:
        if os.path.isdir(directory):
            yield from (os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(ending))


def _read_stored_value(path: str) -> dict[str, Any]:
    """Return the value in a file of the store; empty if it is damaged or expired."""
    try:
        with open(path, encoding="utf-8") as file:
            entry: Any = json.load(file)
        value, end = entry["value"], cast(str | None, entry.get("expires_at"))
        current = end is None or datetime.fromisoformat(end) > datetime.now(UTC)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if current and isinstance(value, dict) else {}
