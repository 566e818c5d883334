"""A connection over WebSocket: one message in each text frame."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from kimi.interfaces.conformance.connection import MAX_LINE_BYTES, Connection, OpenConnection, Place
from kimi.interfaces.conformance.ledger import Mismatch

_POSITION: Final = re.compile(r',\s*"position":\s*"[^"\\]*"\s*\}$')


class WebSocketConnection:
    """Lines as text frames. There is no process: what needs one raises Mismatch.

    What the transport adds is left out, so that the items see what they see over stdio: messages about the connection,
    and the positions of messages (wire spec 13.3).
    """

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session = session
        self._socket = socket

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError, aiohttp.ClientError):
            for line in data.splitlines():
                await self._socket.send_str(line.decode("utf-8", "replace"))

    async def receive(self) -> bytes:
        while (message := await self._socket.receive()).type is aiohttp.WSMsgType.TEXT:
            if (line := _drop_transport(message.data)) is not None:
                return line + b"\n"
        if message.type is aiohttp.WSMsgType.BINARY:
            raise Mismatch("a frame is binary")
        return b""

    async def end_input(self) -> None:
        await self._socket.close()

    async def close_output(self) -> None:
        raise Mismatch("there is no process")

    def send_signal(self, number: int) -> None:
        raise Mismatch(f"there is no process to send signal {number} to")

    async def wait(self) -> int:
        raise Mismatch("there is no process")

    async def read_errors(self) -> bytes:
        return b""

    def latest_errors(self) -> bytes:
        return b""

    async def close(self) -> None:
        await self._socket.close()
        await self._session.close()


def _drop_transport(text: str) -> bytes | None:
    """Return a message as it would be over stdio; None if there would be none. What is no JSON stays as it is."""
    try:
        message: Any = json.loads(text)
    except ValueError:
        return text.encode()
    if not isinstance(message, dict):
        return text.encode()
    fields = cast("dict[str, Any]", message)
    if fields.get("method") == "connection":
        return None
    # By text: encoded anew, the escapes that an item looks for would be gone.
    return _POSITION.sub("}", text).encode("utf-8", "surrogatepass")


def websocket_server(url: str, token: str | None, timeout_s: float = 15) -> OpenConnection:
    """Return what connects to a server within `timeout_s`.

    A URL without a path is that of `kimi web`: a session of its own is made for each connection. A URL with a path is
    connected to as it is, and must give each connection a session of its own.
    """

    async def connect(place: Place, arguments: Sequence[str]) -> Connection:
        if arguments:
            raise Mismatch("a server that runs already takes no arguments")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=timeout_s))
        try:
            target = url if urlsplit(url).path.strip("/") else await _make_session(session, url, str(place[0]))
            connecting = session.ws_connect(target, max_msg_size=MAX_LINE_BYTES, origin=_origin(url))
            socket = await asyncio.wait_for(connecting, timeout_s)
        except TimeoutError:
            await session.close()
            raise Mismatch(f"{url} cannot be connected to: no answer within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            await session.close()
            raise Mismatch(f"{url} cannot be connected to: {error}") from None
        return WebSocketConnection(session, socket)

    return connect


async def _make_session(session: aiohttp.ClientSession, url: str, work_dir: str) -> str:
    """Make a session by the API of `kimi web`; return the URL of its wire."""
    body: Mapping[str, str] = {"work_dir": work_dir}
    async with session.post(f"{_origin(url)}/api/sessions", json=body, headers={"Origin": _origin(url)}) as response:
        if response.status != 201:
            raise ValueError(f"POST /api/sessions was answered {response.status}: {(await response.text())[:200]}")
        made: Any = await response.json()
    if not isinstance(made, dict) or "id" not in made:
        raise ValueError("the answer to POST /api/sessions has no `id`")
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/api/sessions/{made['id']}/wire", parts.query, ""))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"
