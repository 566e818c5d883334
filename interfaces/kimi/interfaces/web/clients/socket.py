"""The WebSocket of one client: its frames to calls, its stream to frames (wire spec 13.1, 13.5)."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import Final

import anyio
from aiohttp import WSCloseCode, WSMsgType, web

from kimi.domain.errors import KimiError
from kimi.interfaces.web.clients.calls import ClientCalls
from kimi.interfaces.web.clients.stream import ClientStream, FellBehind
from kimi.interfaces.web.refusal import Refusal, explain
from kimi.interfaces.web.sessions.hosted_session import HostedSession, Member, Opening, encode_connection
from kimi.interfaces.web.sessions.hosted_sessions import HostedSessions

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
HEARTBEAT_S: Final = 20.0
CLOSE_TIMEOUT_S: Final = 2.0
"""How long a client may take to answer that the connection is closed, in seconds."""

MESSAGES_PER_S: Final = 100.0
"""How many messages of a client are read in a second, on average; further ones wait."""

MESSAGE_BURST: Final = 500
"""How many messages of a client are read without a wait after a pause."""

FELL_BEHIND: Final = 4408
REPLACED: Final = 4411
"""The code with which the earlier connection of a client is closed that is back."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ClientSocket:
    """Serves one client over its WebSocket, once."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._came_at = anyio.current_time()
        self._socket = web.WebSocketResponse(
            timeout=CLOSE_TIMEOUT_S,
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_MESSAGE_BYTES,
            compress=False,
            decode_text=False,
        )
        self._scope = anyio.CancelScope()
        self._close_code = int(WSCloseCode.OK)

    def close(self, code: int) -> None:
        """Close the connection with this code. Idempotent."""
        if not self._scope.cancel_called:
            self._close_code = code
            self._scope.cancel()

    async def serve(self, sessions: HostedSessions, session_id: str) -> web.WebSocketResponse:
        """Serve the client until one side closes the connection."""
        await self._socket.prepare(self._request)
        with self._scope:
            try:
                async with sessions.use(session_id) as session:
                    await self._serve_session(session)
            except OSError:
                logger.info("a client has gone")
            except Exception as error:
                await self._refuse(error)
        await self._close_socket()
        return self._socket

    async def _close_socket(self) -> None:
        with anyio.move_on_after(CLOSE_TIMEOUT_S) as waited, suppress(OSError):
            await self._socket.close(code=self._close_code)
        transport = self._request.transport
        if waited.cancelled_caught and transport is not None:
            transport.abort()  # it reads nothing, and what it has not read would be kept for it

    async def _serve_session(self, session: HostedSession) -> None:
        name = self._request.query.get("client")
        if name is not None and not _NAME.fullmatch(name):
            raise Refusal("invalid", "The name of a client has 1 to 64 letters, digits, `-` and `_`.")
        stream = ClientStream(session, self._send, joins=self._request.query.get("batch") == "1")
        member = Member(stream.wake, self.close, name, self._came_at)
        # Nothing is awaited up to the opening: what the earlier connection began is part of what the client is told.
        session.keep_latest(member, REPLACED)
        opening = session.open_stream(self._request.query.get("after"))
        async with session.join(member), anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_stream, stream, opening)
            await self._read(ClientCalls(session, member, stream), stream)
            tasks.cancel_scope.cancel()

    async def _run_stream(self, stream: ClientStream, opening: Opening) -> None:
        try:
            await stream.run(opening)
        except FellBehind:
            logger.info("a client reads too slowly and has to come back")
            self.close(FELL_BEHIND)
        except KimiError as error:  # the record cannot be read
            await self._refuse(error)
            self._scope.cancel()
        except OSError:
            self.close(int(WSCloseCode.GOING_AWAY))

    async def _send(self, message: bytes) -> None:
        await self._socket.send_frame(message, WSMsgType.TEXT)

    async def _read(self, calls: ClientCalls, stream: ClientStream) -> None:
        allowance = _Allowance()
        while True:
            received = await self._socket.receive()
            if received.type is WSMsgType.TEXT:
                await allowance.take()
                if self._scope.cancel_called:
                    return  # a cancellation comes at the next wait only, and there was none if the message was here
                calls.handle(received.data)
                await stream.wait_for_reader()
            elif received.type is WSMsgType.BINARY:
                self.close(int(WSCloseCode.UNSUPPORTED_DATA))
                return
            else:
                return

    async def _refuse(self, error: Exception) -> None:
        refusal = explain(error)
        self._close_code = refusal.close_code
        with suppress(OSError):
            await self._send(encode_connection("Refused", refusal.error))


class _Allowance:
    """How many messages a client may send now: it grows with the time."""

    def __init__(self) -> None:
        self._left = float(MESSAGE_BURST)
        self._counted_at = anyio.current_time()

    async def take(self) -> None:
        """Count a message; wait when there were too many."""
        now = anyio.current_time()
        self._left = min(MESSAGE_BURST, self._left + (now - self._counted_at) * MESSAGES_PER_S) - 1
        self._counted_at = now
        if self._left < 0:
            await anyio.sleep(-self._left / MESSAGES_PER_S)
