"""The wire driver: read lines, call methods and resolve requests, write events as lines (wire spec 1, 4)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.settings.settings import Settings
from kimi.interfaces.rpc.framing import LineReader, ReadBlock
from kimi.interfaces.rpc.messages import (
    INVALID_REQUEST,
    RpcFault,
    RpcNotification,
    RpcReply,
    RpcRequest,
    encode_error,
    parse_message,
)
from kimi.interfaces.rpc.outbox import Outbox
from kimi.interfaces.rpc.wire_calls import Negotiate
from kimi.interfaces.wire.methods import WireMethods
from kimi.interfaces.wire.output import WireOutput

logger = logging.getLogger(__name__)

WIND_DOWN_TIMEOUT_S: Final = 1.5
"""How long the last events and responses may take, in seconds; the process must end within two seconds."""


class WireServer:
    """Serves one client with one conversation, once.

    Lines are handled strictly in order: each request is accepted or refused before the next line is handled, and what
    takes time runs as a task. All output goes through one outbox, in order.
    """

    def __init__(
        self,
        conversation: Conversation,
        negotiate: Negotiate,
        write: Callable[[bytes], Awaitable[None]],
        settings: Settings,
    ) -> None:
        self.outbox = Outbox(write, settings.wire.max_queued_bytes, self.stop)
        self._tasks = anyio.create_task_group()
        self._conversation = conversation
        self._max_line_bytes = settings.wire.max_line_bytes
        self._output = WireOutput(self.outbox, strict=bool(settings.strict_profile))
        self._methods = WireMethods(
            conversation, negotiate, self._output, self._tasks, strict_setting=settings.strict_profile
        )
        self._read_scope = anyio.CancelScope()

    @property
    def initialized(self) -> anyio.Event:
        """The event that is set when the answer to the handshake is queued."""
        return self._methods.initialized

    def stop(self) -> None:
        """Stop reading, as at the end of the input. Idempotent."""
        self._read_scope.cancel()

    async def serve(self, read_block: ReadBlock) -> None:
        """Serve until the end of the input or `stop`, then wind down within two seconds (wire spec 1.5)."""
        async with self._tasks as tasks:
            tasks.start_soon(self.outbox.run)
            tasks.start_soon(self._forward_events)
            with self._read_scope:
                async for line in LineReader(read_block, self._max_line_bytes):
                    self._handle_line(line)
                    if self.outbox.is_flooded:
                        await self.outbox.wait_for_reader()
            await self._wind_down()
            tasks.cancel_scope.cancel()  # the pumps run until they are cancelled

    def _handle_line(self, line: bytes | None) -> None:
        """Handle one line; None stands for a line that was too long."""
        if line is None:
            self._output.send(encode_error(None, INVALID_REQUEST, "Message too large"))
            return
        match parse_message(line):
            case None:
                return
            case RpcFault(code, message):
                self._output.send(encode_error(None, code, message))
            case RpcNotification(method):
                self._methods.handle_notification(method)
            case RpcRequest(method, params, call_id):
                self._methods.handle_request(call_id, method, params)
            case RpcReply() as reply:
                self._handle_reply(reply)

    def _handle_reply(self, reply: RpcReply) -> None:
        request = self._conversation.events.pending_requests.find(reply.id) if isinstance(reply.id, str) else None
        if request is not None:
            from kimi.application.control.resolve_request import resolve_request  # start-up time
            from kimi.interfaces.rpc.wire_answers import decode_answer  # start-up time

            resolve_request(self._conversation, request.id, decode_answer(request, reply))
        elif not reply.has_result and reply.error is None:
            self._output.send(encode_error(None, INVALID_REQUEST, "Invalid response"))
        else:
            logger.info("reply to a request that does not wait: %r", reply.id)

    async def _forward_events(self) -> None:
        """Send events as lines. While the client does not read, this waits, the channel fills, and the turn pauses."""
        channel = self._conversation.events.channel
        try:
            while batch := await channel.receive():
                await self.outbox.wait_for_capacity()
                self._output.send_events(batch)
        finally:
            channel.close()  # else a turn would wait for ever until its events are taken

    async def _wind_down(self) -> None:
        """Resolve pending requests, cancel the turn, and send its last events and its response (W-26)."""
        # The channel stays open until the answers are queued: a cancelled turn still sends events before its answer.
        self._conversation.events.pending_requests.close()
        self._methods.cancel_running()
        with anyio.move_on_after(WIND_DOWN_TIMEOUT_S):
            await self._output.wait_for_answers()
            await self.outbox.flush()
        self._conversation.events.channel.close()
