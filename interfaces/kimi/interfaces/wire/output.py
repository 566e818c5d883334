"""The output to a client of the wire: answers, events and requests, in one order."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from kimi.application.conversation.event_channel import Delivery
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import RpcId
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.rpc.wire_events import WireEventEncoder


class WireOutput:
    """Queues messages for one client.

    `strict` says whether it gets only the events of the strict profile, `with_usage` whether it gets totals of tokens.
    """

    def __init__(self, outbox: Outbox, *, strict: bool) -> None:
        self.outbox = outbox
        self.strict = strict
        self.with_usage = False
        self._encoder = WireEventEncoder()
        self._in_flight: set[RpcId] = set()
        self._answered = anyio.Event()

    def send(self, message: bytes) -> None:
        """Queue the answer to a request, or an error."""
        self.outbox.put_answer(frame_message(message))

    def send_events(self, batch: Sequence[Delivery]) -> None:
        """Queue events and requests."""
        encode, strict, with_usage = self._encoder.encode, self.strict, self.with_usage
        lines = [encode(delivery, strict=strict, with_usage=with_usage) for delivery in batch]
        self.outbox.put(b"".join(filter(None, lines)))

    def is_in_flight(self, call_id: RpcId) -> bool:
        """Whether a call with this id waits for its answer."""
        return call_id in self._in_flight

    def defer_answer(self, call_id: RpcId) -> None:
        """Mark a call as in flight; `send_answer` must answer it later."""
        self._in_flight.add(call_id)

    def send_answer(self, call_id: RpcId, message: bytes) -> None:
        """Answer a call that `defer_answer` marked."""
        self._in_flight.discard(call_id)
        self.send(message)
        self._answered.set()
        self._answered = anyio.Event()

    async def wait_for_answers(self) -> None:
        """Wait until the answer to every call in flight is queued."""
        while self._in_flight:
            await self._answered.wait()
