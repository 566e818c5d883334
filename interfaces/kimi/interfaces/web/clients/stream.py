"""What one client is sent: the past that it asks for, the messages of its session, and answers to its calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import anyio
import anyio.lowlevel

from kimi.interfaces.rpc.messages import RpcId
from kimi.interfaces.rpc.wire_replay import ReplayProgress
from kimi.interfaces.web.sessions.hosted_session import HostedSession, Opening, encode_connection

MAX_UNREAD_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""How many bytes of answers a client may leave unread before its input waits."""

MAX_JOINED_BYTES: Final = 64 * 1024
"""How many bytes of messages are joined to an array, unless one message alone has more."""

_YIELD_EVERY: Final = 32
"""After how many messages other clients get their turn, when this one takes them as fast as they come."""


class FellBehind(Exception):
    """The client reads so slowly that messages which it has not been sent are no longer kept."""


class ClientStream:
    """The one ordered output to a client. It holds answers only; the messages of the session stay in the log."""

    def __init__(
        self, session: HostedSession, write: Callable[[bytes], Awaitable[None]], *, joins: bool = False
    ) -> None:
        self._session = session
        self._write = write
        self._joins = joins
        """Whether several messages may be written at once, as an array."""
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self.with_usage = False
        self._next = 0
        """The position of the next message of the log."""
        self._answers: deque[tuple[int, Iterator[bytes]]] = deque()
        """Answers, each with the position of the message that it must come before."""
        self._answer_bytes = 0
        self._in_flight: set[RpcId] = set()
        self._arrived = anyio.Event()
        self._sent = anyio.Event()
        self._sent_count = 0

    # --- answers --------------------------------------------------------------------------------------------------

    def answer(self, message: bytes) -> None:
        """Queue an answer: it comes after all messages that are in the log by now, and before all later ones."""
        self._answer_bytes += len(message)
        self.answer_at_length(iter((message,)))

    def answer_at_length(self, messages: Iterator[bytes]) -> None:
        """Queue messages that are made while they are sent."""
        self._answers.append((self._session.log.next, messages))
        self.wake()

    def is_in_flight(self, call_id: RpcId) -> bool:
        """Whether a call with this id waits for its answer."""
        return call_id in self._in_flight

    def defer_answer(self, call_id: RpcId) -> None:
        """Mark a call as in flight; `answer_deferred` answers it."""
        self._in_flight.add(call_id)

    def answer_deferred(self, call_id: RpcId, message: bytes) -> None:
        """Answer a call that `defer_answer` marked."""
        self.finish_deferred(call_id)
        self.answer(message)

    def finish_deferred(self, call_id: RpcId) -> None:
        """No longer count a call as in flight: its answer is being sent."""
        self._in_flight.discard(call_id)

    async def wait_for_reader(self) -> None:
        """Wait while the client has sent calls for more answers than it reads."""
        while self._answer_bytes > MAX_UNREAD_ANSWER_BYTES:
            await self._sent.wait()

    def wake(self) -> None:
        """Look for messages: there are new ones."""
        self._arrived.set()

    # --- sending --------------------------------------------------------------------------------------------------

    async def run(self, opening: Opening) -> None:
        """Send until cancelled. Raises FellBehind, and OSError when the connection is lost."""
        await self._send_opening(opening)
        while True:
            message = self._take_next()
            if message is None:
                await self._flush()
                message = self._take_next()
            if message is None:
                # No await between the search and the new event, so no message is missed.
                self._arrived = anyio.Event()
                await self._arrived.wait()
                continue
            await self._send(message)

    async def _send(self, message: bytes) -> None:
        """Write a message; where messages are joined, when enough are there or `_flush` is called."""
        self._sent_count += 1
        if not self._joins:
            await self._write(message)
        else:
            self._unwritten.append(message)
            self._unwritten_bytes += len(message)
            if self._unwritten_bytes >= MAX_JOINED_BYTES:
                await self._flush()
        if self._sent_count % _YIELD_EVERY == 0:
            await anyio.lowlevel.checkpoint()

    async def _flush(self) -> None:
        if self._unwritten:
            joined = self._unwritten[0] if len(self._unwritten) == 1 else b"[%b]" % b",".join(self._unwritten)
            self._unwritten, self._unwritten_bytes = [], 0
            await self._write(joined)

    async def _send_opening(self, opening: Opening) -> None:
        await self._send(encode_connection("Attached", {"mode": opening.mode}))
        progress = ReplayProgress()
        for _, envelope, request in opening.past:
            await self._send(progress.encode_next(envelope, request))
        await self._flush()
        self._next = await opening.wait_for_position()
        # Of a client that continues: what it has missed comes before it is told that it is up to date.
        missed_until = self._session.log.next if opening.mode == "resumed" else self._next
        while self._next < missed_until:
            await self._send(self._take_entry())
        position = self._session.log.format_position(self._next - 1).decode()
        await self._send(encode_connection("Current", {"position": position, "state": self._session.state}))
        for request in self._session.list_waiting(self._next):
            await self._send(request)

    def _take_next(self) -> bytes | None:
        while self._answers and self._answers[0][0] <= self._next:
            message = next(self._answers[0][1], None)
            if message is not None:
                return message
            self._answers.popleft()
            if not self._answers:
                self._answer_bytes = 0
                self._notify_sent()
        return self._take_entry() if self._next < self._session.log.next else None

    def _take_entry(self) -> bytes:
        log = self._session.log
        if self._next < log.first:
            raise FellBehind
        entry = log.get(self._next)
        self._next += 1
        return entry.with_usage if self.with_usage and entry.with_usage is not None else entry.message

    def _notify_sent(self) -> None:
        self._sent.set()
        self._sent = anyio.Event()
