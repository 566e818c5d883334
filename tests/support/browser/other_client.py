"""A client of the wire that is no browser, on the WebSocket of a session, for tests that are not asynchronous."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from aiohttp import ClientSession, ClientWebSocketResponse
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.support.browser.web_process import Web

Json: TypeAlias = dict[str, Any]
DEADLINE_S = 15


class OtherClient:
    """The client: `messages` are all that it has got so far."""

    def __init__(self, portal: BlockingPortal, socket: ClientWebSocketResponse) -> None:
        self._portal = portal
        self._socket = socket
        self.messages: list[Json] = []

    def send(self, message: Json) -> None:
        """Send one message."""
        self._portal.call(self._socket.send_json, {"jsonrpc": "2.0", **message})

    def wait(self, type_: str) -> Json:
        """Return the payload of the next message of this type, events, requests and those of the connection alike."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            message = self._portal.call(self._receive)
            self.messages.append(message)
            params: Json = message.get("params", {})
            if params.get("type") == type_:
                return params["payload"]
        raise AssertionError(f"no {type_} came")

    async def _receive(self) -> Json:
        return await self._socket.receive_json(timeout=DEADLINE_S)


@contextmanager
def other_client(web: Web, session: str) -> Generator[OtherClient, None, None]:
    """Attach to a session as a program does, with the token."""
    address = f"{web.address}/api/sessions/{session}/wire?after=start"
    headers = {"Authorization": f"Bearer {web.token}", "Origin": web.address}
    with start_blocking_portal("asyncio") as portal:
        http = portal.call(_make_session)
        try:
            socket = portal.call(lambda: _connect(http, address, headers))
            try:
                client = OtherClient(portal, socket)
                client.wait("Current")
                yield client
            finally:
                portal.call(socket.close)
        finally:
            portal.call(http.close)


async def _make_session() -> ClientSession:
    return ClientSession()


async def _connect(http: ClientSession, address: str, headers: dict[str, str]) -> ClientWebSocketResponse:
    return await http.ws_connect(address, headers=headers)
