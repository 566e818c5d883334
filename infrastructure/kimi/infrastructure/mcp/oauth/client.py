"""The OAuth clients of MCP servers. Importing this loads fastmcp; `oauth` does so only for a connection."""

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
"""How the program is called where the user is asked for consent."""

RENEWAL_WAIT_S: Final = 10.0
"""How long a renewal waits for that of another process."""


def open_token_store(directory: str) -> FileTreeStore:
    """The store of all logins; one file per value, readable for the owner only."""
    path = Path(directory)
    return FileTreeStore(
        data_directory=path,
        key_sanitization_strategy=FileTreeV1KeySanitizationStrategy(path),
        collection_sanitization_strategy=FileTreeV1CollectionSanitizationStrategy(path),
    )


class StoredLogin(OAuth):
    """Uses and renews the stored tokens. `refused` is true once the server wanted the user in spite of them.

    Only one process, or session of a process, renews a login at a time: most servers take the token for that once, and
    some end a login for which it comes twice.
    """

    is_rejected = False

    def __init__(self, server_url: str, directory: str) -> None:
        super().__init__(server_url, client_name=CLIENT_NAME, token_storage=open_token_store(directory))
        self._renewed = False
        self._lock_file = os.path.join(directory, f"{hashlib.sha256(server_url.encode()).hexdigest()[:16]}.lock")

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See `OAuth`. What another process has renewed meanwhile is read before anything is renewed here."""
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
        """Never opens a browser. Raises McpUnauthorized."""
        self.is_rejected = True
        raise McpUnauthorized(f"The login at {self.mcp_url} is no longer valid.")

    async def _perform_authorization(self) -> httpx2.Request:
        """Renew what is stored once more before giving up: only now the library knows where the server renews tokens,
        after a start it asks a place that it guesses; and another process may have renewed them meanwhile.
        """
        tokens = None if self._renewed else await self.token_storage_adapter.get_tokens()
        if tokens is None or not tokens.refresh_token or self.context.client_info is None:
            return await super()._perform_authorization()
        self._renewed = True
        self.context.current_tokens = tokens
        return await self._refresh_token()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        """What comes back is the answer to that, for there is no code to exchange without a user."""
        if not await self._handle_refresh_response(response):
            await self.redirect_handler("")
        self._renewed = False


async def _acquire_lock(lock: FileLock) -> None:
    """Take the lock; without it when it cannot be had in time, or at all."""
    with anyio.move_on_after(RENEWAL_WAIT_S), suppress(OSError):
        while True:
            if lock.try_acquire():
                return
            await anyio.sleep(0.05)


class BrowserLogin(OAuth):
    """Sends the user's browser to the server and waits for it to come back, at most five minutes.

    It comes back to `port` of this machine, any that is free if None.
    """

    def __init__(self, server_url: str, directory: str, show_address: Callable[[str], None], port: int | None) -> None:
        store = open_token_store(directory)
        super().__init__(server_url, client_name=CLIENT_NAME, token_storage=store, callback_port=port)
        self._show_address = show_address
        self._login_url = ""

    async def redirect_handler(self, authorization_url: str) -> None:
        """Where the browser is to be sent. It comes from the server: nothing but a web page is opened.

        Raises:
            McpUnauthorized: the address is none of the web.
        """
        if not authorization_url.lower().startswith(("https://", "http://")):
            raise McpUnauthorized(f"The server at {self.mcp_url} names no web page to log in at.")
        self._show_address(authorization_url)
        self._login_url = authorization_url

    async def callback_handler(self) -> AuthorizationCodeResult:
        """Open the browser once somebody listens here: a user who is logged in already is sent back at once."""
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
    """Does anybody listen on this port of this machine?"""
    try:
        stream = await anyio.connect_tcp("localhost", port)
    except OSError:
        return False
    await stream.aclose()
    return True
