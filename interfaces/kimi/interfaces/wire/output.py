"""The output to a client of the wire: answers, events and requests, in one order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio

from kimi.application.conversation.event_channel import Delivery
from kimi.domain.errors import AuthExpired, CapabilityMissing, ChatProviderError, ModelNotSet, StateError
from kimi.interfaces.rpc.framing import frame_message
from kimi.interfaces.rpc.messages import INTERNAL_ERROR, RpcId, encode_error
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.wire.event_encoder import WireEventEncoder

logger = logging.getLogger(__name__)

_ERROR_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (StateError, -32000),
    (ModelNotSet, -32001),
    (CapabilityMissing, -32002),
    (AuthExpired, -32004),
    (ChatProviderError, -32003),
)
"""Error classes and their wire codes; the first match counts, any other error is -32603."""


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


def encode_failure(call_id: RpcId, error: Exception) -> bytes:
    """Return the error response for an error that a method raised."""
    for kind, code in _ERROR_CODES:
        if isinstance(error, kind):
            return encode_error(call_id, code, str(error))
    logger.error("a method failed", exc_info=error)
    return encode_error(call_id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")
