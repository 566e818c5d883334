"""The client as the rest of the driver sees it: updates to it, calls to it."""

from __future__ import annotations

from typing import Any, Protocol, cast

import anyio

from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.transport.errors import log_internal_error
from kimi.interfaces.acp.transport.lines import AcpTransport, collect_sent_ids


class RequestSender(Protocol):
    """The part of the SDK's connection that calls the client."""

    async def send_request(self, method: str, params: Any = None) -> Any: ...


class RemoteClient:
    """One client. Calls to it wait until the SDK is loaded."""

    def __init__(self, transport: AcpTransport) -> None:
        self._transport = transport
        self._outbox = transport.outbox
        self._connection: RequestSender | None = None
        self._connected = anyio.Event()

    def connect(self, connection: RequestSender) -> None:
        """Calls go this way from now on."""
        self._connection = connection
        self._connected.set()

    async def call(self, method: str, params: JsonObject) -> JsonObject:
        """Call a method of the client and wait for its result, `{}` for one that is no object.

        A call that is cancelled is taken back with `$/cancel_request`; a late answer to it is ignored.
        Raises the SDK's RequestError for an error answer, ConnectionError when the client is gone.
        """
        await self._connected.wait()
        assert self._connection is not None
        ids = collect_sent_ids()
        try:
            result = await self._connection.send_request(method, params)
        except anyio.get_cancelled_exc_class():
            for request_id in ids:
                self._transport.send_notification("$/cancel_request", {"requestId": request_id})
            raise
        return cast("JsonObject", result) if isinstance(result, dict) else {}

    def send_update(self, session_id: str, update: JsonObject) -> None:
        """Queue a `session/update`; never waits. A sender of many waits for capacity."""
        try:
            self._outbox.put_update(session_id, update)
        except Exception as error:  # one that cannot be encoded: the others go on
            log_internal_error(error)

    async def wait_for_capacity(self) -> None:
        """Wait while the client does not read what was sent."""
        await self._outbox.wait_for_capacity()
