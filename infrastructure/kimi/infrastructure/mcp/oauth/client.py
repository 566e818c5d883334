"""The OAuth clients of MCP servers. Importing this loads fastmcp; `logins` does so only for a connection."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

import anyio
import httpx2
from fastmcp.client.auth import OAuth
from key_value.aio.stores.filetree import (
    FileTreeStore,
    FileTreeV1CollectionSanitizationStrategy,
    FileTreeV1KeySanitizationStrategy,
)
from mcp.client.auth import AuthorizationCodeResult

from kimi.domain.errors import McpUnauthorized
from kimi.infrastructure.store.files.lock import FileLock

CLIENT_NAME = "kimi"
"""The name of the program where the user is asked for consent."""

RENEWAL_WAIT_S: Final = 10.0
"""How long a renewal waits for that of another process, in seconds."""


def open_token_store(directory: str) -> FileTreeStore:
    """Open the store of all logins: one file per value, readable only for the owner."""
    path = Path(directory)
    return FileTreeStore(
        data_directory=path,
        key_sanitization_strategy=FileTreeV1KeySanitizationStrategy(path),
        collection_sanitization_strategy=FileTreeV1CollectionSanitizationStrategy(path),
    )


class StoredLogin(OAuth):
    """A login that uses and renews the stored tokens.

    `is_rejected` is True once the server required the user in spite of them. Only one process, or session of a process,
    renews a login at a time: most servers accept a refresh token only once, and some end the login if it comes twice.
    """

    is_rejected = False

    def __init__(self, server_url: str, directory: str) -> None:
        super().__init__(server_url, client_name=CLIENT_NAME, token_storage=open_token_store(directory))
        self._renewed = False
        self._lock_file = os.path.join(directory, f"{hashlib.sha256(server_url.encode()).hexdigest()[:16]}.lock")

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See `OAuth`. Tokens that another process has renewed are read again before anything is renewed here."""
        renewal_lock, known = FileLock(self._lock_file), self.context.current_tokens
        try:
            if not self.context.is_token_valid():
                await _acquire_lock(renewal_lock)
                self._initialized = False
            async with aclosing(super().async_auth_flow(request)) as flow:
                outgoing = await anext(flow)
                while True:
                    if self.context.current_tokens is not known and self.context.is_token_valid() and not self._renewed:
                        renewal_lock.release()  # the request itself may take long
                    response = yield outgoing
                    if outgoing is request and response.status_code == 401:
                        known = self.context.current_tokens
                        await _acquire_lock(renewal_lock)
                    outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            renewal_lock.release()

    async def redirect_handler(self, authorization_url: str) -> None:
        """Fail instead of opening a browser. Raises McpUnauthorized."""
        self.is_rejected = True
        raise McpUnauthorized(f"The login at {self.mcp_url} is no longer valid.")

    async def _perform_authorization(self) -> httpx2.Request:
        """Renew the stored tokens once more before giving up.

        Only now does the library know where the server renews tokens (after a start it guesses the address), and
        another process may have renewed them meanwhile.
        """
        tokens = None if self._renewed else await self.token_storage_adapter.get_tokens()
        if tokens is None or not tokens.refresh_token or self.context.client_info is None:
            return await super()._perform_authorization()
        self._renewed = True
        self.context.current_tokens = tokens
        return await self._refresh_token()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        """Handle the response to the renewal: without a user there is no code to exchange."""
        if not await self._handle_refresh_response(response):
            await self.redirect_handler("")
        self._renewed = False


async def _acquire_lock(lock: FileLock) -> None:
    """Acquire the lock; continue without it if it cannot be acquired in time, or at all."""
    with anyio.move_on_after(RENEWAL_WAIT_S), suppress(OSError):
        while True:
            if lock.try_acquire():
                return
            await anyio.sleep(0.05)


class BrowserLogin(OAuth):
    """Sends the user's browser to the server and waits for its return, at most five minutes.

    The browser returns to `port` of this machine, to any free one if None.
    """

    def __init__(self, server_url: str, directory: str, show_address: Callable[[str], None], port: int | None) -> None:
        store = open_token_store(directory)
        super().__init__(server_url, client_name=CLIENT_NAME, token_storage=store, callback_port=port)
        self._show_address = show_address
        self._login_url = ""

    async def redirect_handler(self, authorization_url: str) -> None:
        """Store and show the address for the browser.

        The address comes from the server: only a web page is opened.

        Raises:
            McpUnauthorized: the address is not one of the web.
        """
        if not authorization_url.lower().startswith(("https://", "http://")):
            raise McpUnauthorized(f"The server at {self.mcp_url} names no web page to log in at.")
        self._show_address(authorization_url)
        self._login_url = authorization_url

    async def callback_handler(self) -> AuthorizationCodeResult:
        """Open the browser once the callback port is open: a user who is logged in already returns at once."""
        coming_back = asyncio.ensure_future(super().callback_handler())
        try:
            while not coming_back.done():
                if await _is_listening(self.redirect_port):
                    break
                await anyio.sleep(0.02)
            if not coming_back.done():
                await super().redirect_handler(self._login_url)
            return await coming_back
        finally:
            coming_back.cancel()
            await asyncio.wait([coming_back])


async def _is_listening(port: int) -> bool:
    """Return whether this port of this machine accepts connections."""
    try:
        stream = await anyio.connect_tcp("localhost", port)
    except OSError:
        return False
    await stream.aclose()
    return True
