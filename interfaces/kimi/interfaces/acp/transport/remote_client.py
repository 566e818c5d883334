"""The client as the rest of the driver sees it: it receives updates and calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import anyio

from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.transport.errors import log_internal_error
from kimi.interfaces.acp.transport.lines import AcpTransport, collect_sent_ids
from kimi.interfaces.acp.transport.update_outbox import encode_update

if TYPE_CHECKING:
    from kimi.interfaces.acp.transport.sdk import Connection


class RemoteClient:
    """Sends updates and calls to one client. Before the first call it must be connected."""

    def __init__(self, transport: AcpTransport) -> None:
        self._transport = transport
        self._outbox = transport.outbox
        self._connection: Connection | None = None

    def connect(self, connection: Connection) -> None:
        """Send calls over this connection, whose methods may call the client."""
        self._connection = connection

    async def call(self, method: str, params: JsonObject) -> JsonObject:
        """Call a method of the client and return its result, or `{}` if that is not an object.

        When this is cancelled, the client gets `$/cancel_request`; a late answer is ignored.
        Raises the SDK's RequestError for an error answer, ConnectionError when the client is gone.
        """
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
        """Queue a `session/update` without waiting. A sender of many updates must await `wait_for_capacity`."""
        try:
            self._outbox.put_update(session_id, update)
        except Exception as error:  # an update that cannot be encoded must not stop the others
            log_internal_error(error)

    def send_final_updates(self, session_id: str, updates: Iterable[JsonObject]) -> None:
        """Queue updates that no later one continues, so that their texts need not be kept to be joined."""
        for update in updates:
            try:
                self._outbox.put(encode_update(session_id, update))
            except Exception as error:  # as above
                log_internal_error(error)

    async def wait_for_capacity(self) -> None:
        """Wait while too many lines are queued because the client does not read."""
        await self._outbox.wait_for_capacity()
