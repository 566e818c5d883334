"""The transports to a remote MCP server (tools spec 4.1, 6.2). Importing this loads fastmcp.

The library's own transports end a session if a message has more than one mebibyte, as a picture easily has, and leave a
call waiting whose message a server with the older transport (sse) did not accept. The sessions are the library's.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urljoin

import anyio
import anyio.abc
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastmcp.client.transports import ClientTransport, SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import TransportOptions
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client, request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage

from kimi.application.settings.settings import McpServer
from kimi.domain.errors import ConfigError
from kimi.infrastructure.mcp.transport.message_guard import MessageGuard, MessageRefused
from kimi.infrastructure.mcp.transport.message_parsing import parse_message

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S: Final = 30.0
"""Seconds to open a connection; the caller limits the time of a response."""

SILENCE_TIMEOUT_S: Final = 300.0
"""Seconds between two events of a server with the older transport, unless its entry says otherwise."""


def create_transport(
    server: McpServer, auth: httpx2.Auth | None = None, guard: MessageGuard | None = None
) -> ClientTransport:
    """Create the transport for `server`, which has a URL and expanded variables; nothing is connected.

    `auth` is the login of a server with `auth: "oauth"`; any other `auth` of it is a bearer token. `guard` limits its
    messages.

    Raises:
        ConfigError: a header or the token cannot be sent.
    """
    assert server.url is not None, "a usable entry has a command or a URL"
    headers = {name: _check_sendable(value, f"header '{name}'", server) for name, value in server.headers.items()}
    access = auth if server.auth in (None, "oauth") else _check_sendable(server.auth, "token", server)
    if server.transport == "sse":
        events = EventTransport(server.url, headers, auth=access, sse_read_timeout=server.sse_read_timeout_s)
        events.guard = guard or MessageGuard()
        return events
    transport = HttpTransport(server.url, headers, auth=access)
    transport.guard = guard or MessageGuard()
    return transport


def _check_sendable(value: str, what: str, server: McpServer) -> str:
    """Return `value` without space around it, such as the end of a line of its file. Raises ConfigError.

    The HTTP library would refuse it too, but repeat the secret in its error.
    """
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"The {what} of MCP server '{server.name}' has a character that no HTTP header may have.")
    return value


class HttpTransport(StreamableHttpTransport):
    """Streamable HTTP."""

    guard: MessageGuard

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[ClientSession, None]:
        """See `ClientTransport`."""
        options = transport_options or TransportOptions()
        new_client = self.httpx_client_factory or create_mcp_http_client
        async with (
            new_client(headers=dict(self.headers), auth=self.auth) as client,
            streamable_http_client(self.url, http_client=client, max_sse_event_size=None) as (read, write),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session


class EventTransport(SSETransport):
    """The older transport (sse): messages arrive as events of one long response, and each sent message is a request.

    The connection is lost when either direction breaks.
    """

    guard: MessageGuard

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[ClientSession, None]:
        """See `ClientTransport`."""
        options = transport_options or TransportOptions()
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        with incoming, read, write, outgoing:
            async with self._open_events() as (client, events), anyio.create_task_group() as tasks:
                address = await tasks.start(_receive_messages, events, incoming, self.guard)
                tasks.start_soon(_send_messages, client, address, outgoing, incoming)
                async with options.session_class(read, write, **session_kwargs) as session:
                    yield session
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_events(self) -> AsyncGenerator[tuple[httpx2.AsyncClient, httpx2.EventSource], None]:
        """Open the stream of events. Raises httpx2.HTTPError: the server cannot be reached, or refuses the client."""
        silent_s = self.sse_read_timeout.total_seconds() if self.sse_read_timeout else SILENCE_TIMEOUT_S
        new_client = self.httpx_client_factory or create_mcp_http_client
        timeout = httpx2.Timeout(OPEN_TIMEOUT_S, read=silent_s)
        async with (
            new_client(headers=dict(self.headers), timeout=timeout, auth=self.auth) as client,
            sse_within_origin(client, self.url, max_event_size=None) as events,
        ):
            events.response.raise_for_status()
            yield client, events


async def _receive_messages(
    events: httpx2.EventSource,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    guard: MessageGuard,
    *,
    task_status: anyio.abc.TaskStatus[str],
) -> None:
    """Receive messages from events until they end. The first event names the address to send messages to.

    Raises ConnectionError: it does not, or it names another host.
    """
    address: str | None = None
    with incoming:
        try:
            async for event in events:
                if event.event == "endpoint" and address is None:
                    address = _resolve_endpoint(events.response.request.url, event.data)
                    task_status.started(address)
                elif event.event == "message" and event.data:
                    await _deliver_message(event.data, incoming, guard)
        except (httpx2.HTTPError, httpx2.StreamError, MessageRefused) as error:
            logger.info("the events of an MCP server broke off: %s", error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is closed
    if address is None:
        raise ConnectionError("It does not say where messages go to; is it a server with the transport sse?")


def _resolve_endpoint(url: httpx2.URL, endpoint: str) -> str:
    address = httpx2.URL(urljoin(str(url), endpoint))
    if (address.scheme, address.host, address.port) != (url.scheme, url.host, url.port):
        raise ConnectionError("It wants messages to go to another host.")
    return str(address)


async def _deliver_message(
    text: str, incoming: MemoryObjectSendStream[SessionMessage | Exception], guard: MessageGuard
) -> None:
    try:
        message = await parse_message(text.encode(), guard)
    except ValueError:
        logger.info("an MCP server sent what is no message")
        return
    await incoming.send(SessionMessage(message))


async def _send_messages(
    client: httpx2.AsyncClient,
    address: str,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Send messages one after the other; if one fails, close the incoming stream, so that the session ends."""
    async for message in outgoing:
        text = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            response = await request_within_origin(client, "POST", address, json=text)
            response.raise_for_status()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            logger.info("a message did not get to an MCP server: %s", error)
            incoming.close()
            return
