"""What of the HTTP layer knows aiohttp: sessions, responses, and what their failures are called.

Imported with the first request only: aiohttp takes about 90 ms.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import anyio
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from aiohttp.payload import Payload
from yarl import URL

from kimi.infrastructure.http.contract import (
    HttpError,
    HttpLimits,
    HttpTimeout,
    PrivateAddressError,
    import_socks_library,
)

_SKIPPED_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""aiohttp would add them. Above all no compression is asked for: it makes servers hold a stream back."""

_READ_SIZE = 1 << 18
"""Reading pauses while twice as many bytes wait to be taken."""

_SEND_SIZE = 1 << 18
"""Bytes of a body that are handed over at a time."""

_MAX_REASON = 120

_WATCH_S = 0.5
"""How often a connection is looked at whose loss aiohttp may not have told."""

_DRAIN_TIMEOUT_S = 2.0
"""How long the end of a released response may take, if its connection is to be kept."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `proxy` is an http(s) proxy; `tls` is given when the server or the proxy speaks TLS."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]]
    body: Sequence[bytes]
    proxy: str | None
    tls: ssl.SSLContext | None

    @property
    def target_url(self) -> URL:
        """The URL; without the user in it when a header says who we are, for aiohttp takes either, not both."""
        url = URL(self.url)
        return url.with_user(None) if any(name.lower() == "authorization" for name, _ in self.headers) else url


class HttpSession:
    """The connections of one event loop: those that go out by themselves or through http(s) proxies, or those through
    one SOCKS proxy. Without cookies.

    Raises:
        ConfigError: on creation: the library for SOCKS proxies is missing.
    """

    def __init__(
        self, limits: HttpLimits, socks_proxy: str | None, is_allowed_address: Callable[[str], bool] | None
    ) -> None:
        self._limits = limits
        self._is_allowed_address = is_allowed_address
        self._drain_timers: dict[aiohttp.ClientResponse, asyncio.TimerHandle] = {}
        self._session = aiohttp.ClientSession(
            connector=_make_connector(socks_proxy, is_allowed_address, limit=0, keepalive_timeout=limits.idle_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_SKIPPED_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect_s, sock_read=limits.read_s),
            read_bufsize=_READ_SIZE,
        )

    @asynccontextmanager
    async def open_response(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        """Send a request and give its response. Leaving closes the connection at once, unless the body has ended or
        the response was released.

        Raises:
            HttpError, HttpTimeout: there is no response.
            PrivateAddress: the address must not be reached.
        """
        response = await self._send_request(request)
        given = HttpResponse(response, self._limits)
        try:
            yield given
        finally:
            given.stop_watching()
            if given.is_released:
                self._start_draining(response)
            else:
                _close_at_once(response)

    async def close(self) -> None:
        """Close all connections."""
        for response in list(self._drain_timers):
            response.close()
            self._stop_drain_timer(response)
        await self._session.close()

    async def _send_request(self, request: HttpRequest) -> aiohttp.ClientResponse:
        try:
            self._check_address(request.target_url.raw_host or "")
            with anyio.fail_after(self._limits.head_s):
                return await self._session.request(
                    request.method,
                    request.target_url,
                    headers=request.headers,
                    data=_BlockPayload(b"".join(request.body)) if request.body else None,
                    allow_redirects=False,
                    proxy=request.proxy,
                    ssl=request.tls or True,
                )
        except PrivateAddressError:
            raise
        except _get_failure_types() as error:
            raise translate_failure(error, self._limits) from error

    def _check_address(self, host: str) -> None:
        """Refuse an address in the URL. Only the parsed URL tells: digits beyond ASCII make addresses too."""
        if self._is_allowed_address is not None and _is_ip_address(host) and not self._is_allowed_address(host):
            raise PrivateAddressError

    def _start_draining(self, response: aiohttp.ClientResponse) -> None:
        """Keep the connection if the end of the body comes soon."""
        self._drain_timers[response] = asyncio.get_running_loop().call_later(
            _DRAIN_TIMEOUT_S, self._abandon_draining, response
        )
        response.content.on_eof(lambda: self._stop_drain_timer(response))

    def _abandon_draining(self, response: aiohttp.ClientResponse) -> None:
        self._stop_drain_timer(response)
        response.close()

    def _stop_drain_timer(self, response: aiohttp.ClientResponse) -> None:
        if (timer := self._drain_timers.pop(response, None)) is not None:
            timer.cancel()


def is_parsable_url(url: str) -> bool:
    """Can a request be made of it? Some characters no host can have."""
    try:
        URL(url)
    except ValueError:
        return False
    return True


def _is_ip_address(host: str) -> bool:
    """Is it no name, so that nothing is resolved?"""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _close_at_once(response: aiohttp.ClientResponse) -> None:
    """At the end of the body the connection is in the pool already, and nothing happens."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _make_connector(
    socks_proxy: str | None, is_allowed_address: Callable[[str], bool] | None, **options: Any
) -> aiohttp.BaseConnector:
    if socks_proxy is None:
        if is_allowed_address is not None:
            from kimi.infrastructure.http.pinned_resolver import FilteringResolver

            options["resolver"] = FilteringResolver(is_allowed_address)
        return aiohttp.TCPConnector(**options)
    import_socks_library()
    from aiohttp_socks import ProxyConnector, ProxyType

    proxy = urlsplit(socks_proxy)
    return ProxyConnector(
        proxy.hostname or "",
        proxy.port or 0,
        ProxyType.SOCKS5 if proxy.scheme == "socks5" else ProxyType.SOCKS4,
        username=unquote(proxy.username or "") or None,
        password=unquote(proxy.password or "") or None,
        rdns=True,
        **options,
    )


class _BlockPayload(Payload):
    """Bytes that are handed over in blocks without being copied. Their size is known: they are not chunked."""

    _autoclose = True
    _value: bytes

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._size = len(content)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """All of it as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Hand all of it over. The event loop has its turn between two blocks, for a body may be long."""
        content = memoryview(self._value)
        for at in range(0, len(content), _SEND_SIZE):
            if at:
                await asyncio.sleep(0)
            await writer.write(content[at : at + _SEND_SIZE])


class HttpResponse:
    """The head of a response, and its body in blocks."""

    def __init__(self, response: aiohttp.ClientResponse, limits: HttpLimits) -> None:
        self._response = response
        self._content = response.content
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._watcher = self._loop.call_later(_WATCH_S, self._check_connection, False)
        self.is_released = False
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names in any case."""

    @property
    def is_framed(self) -> bool:
        """Does the response say itself where its body ends, so that a loss cannot pass for the end?"""
        return "Content-Length" in self.headers or "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    async def read_block(self) -> bytes:
        """All of the body that has come meanwhile, compression undone; empty at the end.

        Raises:
            HttpError, HttpTimeout: it broke off.
        """
        try:
            return await self._content.readany()
        except _get_failure_types() as error:
            raise translate_failure(error, self._limits) from error

    async def read(self, limit: int = 65_536) -> bytes:
        """The body, at most about `limit` bytes of it."""
        blocks: list[bytes] = []
        while limit > 0 and (block := await self.read_block()):
            blocks.append(block)
            limit -= len(block)
        return b"".join(blocks)

    def release(self) -> None:
        """What may still come is of no interest: the connection can serve another request once it has ended."""
        self.is_released = True

    def stop_watching(self) -> None:
        """Nobody reads it any more."""
        self._watcher.cancel()

    def _check_connection(self, was_closed: bool) -> None:
        """End the wait of a reader whose connection is gone.

        When the framing of a body is broken, aiohttp closes the connection and stops its time-outs, but does not
        tell the reader. A connection that was closed in good order has told it one interval later.
        """
        connection = self._response.connection
        if connection is None:
            return
        closed = connection.transport is None or connection.transport.is_closing()
        if closed and was_closed:
            self._content.set_exception(aiohttp.ClientPayloadError("the connection was closed"))
        else:
            self._watcher = self._loop.call_later(_WATCH_S, self._check_connection, closed)


def _get_failure_types() -> tuple[type[Exception], ...]:
    """What stands for a failed exchange; the library for SOCKS has roots of its own."""
    socks: Any = sys.modules.get("aiohttp_socks")
    more = () if socks is None else (socks.ProxyError, socks.ProxyConnectionError, socks.ProxyTimeoutError)
    return (aiohttp.ClientError, HttpProcessingError, OSError, UnicodeError, *more)


def translate_failure(error: Exception, limits: HttpLimits) -> HttpError:
    """A failure of aiohttp as ours, with a text that a person understands (a clause, without a full stop)."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return HttpTimeout(f"no connection within {limits.connect_s:g} seconds")
        case aiohttp.ServerTimeoutError():
            return HttpTimeout(f"no data for {limits.read_s:g} seconds")
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, PrivateAddressError):
            return error.os_error
        case TimeoutError():
            return HttpTimeout(f"no answer within {limits.head_s:g} seconds")
        case _:
            return HttpError(_describe_failure(error))


def _describe_failure(error: Exception) -> str:
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.__cause__.verify_message})"
    match error:
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered: {error.status} {error.message}".rstrip()
        case aiohttp.ClientProxyConnectionError():
            return f"cannot connect to the proxy {error.host}: {_format_reason(error.os_error)}"
        case aiohttp.ClientConnectorDNSError():  # the host may be that of a proxy
            return f"the host {error.host} cannot be found: {_format_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {_format_reason(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection"
        case aiohttp.ClientPayloadError():
            return _describe_payload_failure(error)
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return f"the answer is not valid HTTP ({_format_reason(error)})"
        case OSError() | UnicodeError() | aiohttp.ClientError():
            return _format_reason(error)
        case _:
            return f"the SOCKS proxy made no connection: {_format_reason(error)}"


def _describe_payload_failure(error: Exception) -> str:
    if isinstance(error.__cause__, ContentEncodingError):
        return "the answer is not what its Content-Encoding says"
    return "the answer broke off"


def _format_reason(error: BaseException) -> str:
    """One short line, also of errors that come with an excerpt of what they are about."""
    if isinstance(error, OSError) and (error.errno or 0) > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno or 0)
    text = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    return str(text).strip().splitlines()[0].rstrip(" :.")[:_MAX_REASON]
