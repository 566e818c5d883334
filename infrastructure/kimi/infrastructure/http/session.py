"""The part of the HTTP client that uses aiohttp: sessions, responses and the translation of failures.

It is imported with the first request, because importing aiohttp takes about 90 ms.
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
"""Headers that aiohttp would add. Above all, compression must not be requested: it makes servers buffer a stream."""

_READ_SIZE = 1 << 18
"""aiohttp's read buffer, in bytes. Reading pauses while more than twice as many are unread."""

_SEND_SIZE = 1 << 18
"""How many bytes of a body are passed to the writer at a time."""

_MAX_REASON = 120

_WATCH_S = 0.5
"""The interval of the check for a lost connection that aiohttp does not report."""

_DRAIN_TIMEOUT_S = 2.0
"""How long the rest of a released response may take before its connection is closed instead of reused."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `proxy` is an http(s) proxy; `tls` is set when the server or the proxy uses TLS."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]]
    body: Sequence[bytes]
    proxy: str | None
    tls: ssl.SSLContext | None

    @property
    def target_url(self) -> URL:
        """The URL, without its user when there is an Authorization header: aiohttp accepts only one of the two."""
        url = URL(self.url)
        return url.with_user(None) if any(name.lower() == "authorization" for name, _ in self.headers) else url


class HttpSession:
    """The connections of one event loop, without cookies.

    A session serves either one SOCKS proxy, or direct connections and http(s) proxies.

    Raises:
        ConfigError: on creation, when the library for SOCKS proxies is missing.
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
        """Send a request and yield its response.

        Leaving the context closes the connection at once, unless the body has ended or the response was released.

        Raises:
            HttpError, HttpTimeout: there is no response.
            PrivateAddressError: the client must not connect to the address.
        """
        response = await self._send_request(request)
        # Nothing may await between here and `try`: a cancellation there would leak the connection.
        opened = HttpResponse(response, self._limits)
        try:
            yield opened
        finally:
            opened.stop_watching()
            if opened.is_released:
                self._start_draining(response)
            else:
                _close_at_once(response)

    async def close(self) -> None:
        """Close all connections."""
        for response in list(self._drain_timers):  # a copy: a stopped timer leaves the dict
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
        """Check an address in the URL, which the resolver never sees.

        The host must come from the parsed URL: parsing turns digits beyond ASCII into an address, too.
        """
        if self._is_allowed_address is not None and _is_ip_address(host) and not self._is_allowed_address(host):
            raise PrivateAddressError

    def _start_draining(self, response: aiohttp.ClientResponse) -> None:
        """Keep the connection for reuse if the body ends soon, otherwise close it."""
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
    """Whether aiohttp can parse `url`. It refuses some characters in hosts."""
    try:
        URL(url)
    except ValueError:
        return False
    return True


def _is_ip_address(host: str) -> bool:
    """Whether `host` is an address, so that no name is resolved."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _close_at_once(response: aiohttp.ClientResponse) -> None:
    """Close the connection without waiting for pending data.

    After the end of the body the connection has already returned to the pool, and this has no effect on it.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()  # `close` alone would first send what is buffered, and end TLS in good order
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
    """A body that is written in blocks without being copied. Its size is known, so it is not sent chunked."""

    _autoclose = True
    _value: bytes

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._size = len(content)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body. A long body must not block the event loop, which therefore runs between two blocks."""
        content = memoryview(self._value)
        for at in range(0, len(content), _SEND_SIZE):
            if at:
                await asyncio.sleep(0)
            await writer.write(content[at : at + _SEND_SIZE])


class HttpResponse:
    """The head of a response and its body, read in blocks."""

    def __init__(self, response: aiohttp.ClientResponse, limits: HttpLimits) -> None:
        self._response = response
        self._content = response.content
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._watcher = self._loop.call_later(_WATCH_S, self._check_connection, False)
        self.is_released = False
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names are case-insensitive."""

    @property
    def is_framed(self) -> bool:
        """Whether the response states where its body ends, so that a lost connection cannot be taken for the end."""
        return "Content-Length" in self.headers or "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    async def read_block(self) -> bytes:
        """Return everything of the body that has arrived since the last call, decompressed; empty at the end.

        Raises:
            HttpError, HttpTimeout: the response broke off.
        """
        try:
            return await self._content.readany()
        except _get_failure_types() as error:
            raise translate_failure(error, self._limits) from error

    async def read(self, limit: int = 65_536) -> bytes:
        """Return the body, or about `limit` bytes of it."""
        blocks: list[bytes] = []
        while limit > 0 and (block := await self.read_block()):
            blocks.append(block)
            limit -= len(block)
        return b"".join(blocks)

    def release(self) -> None:
        """Give up the rest of the body. The connection can serve another request once the body has ended."""
        self.is_released = True

    def stop_watching(self) -> None:
        """Stop checking the connection: the body is no longer read."""
        self._watcher.cancel()

    def _check_connection(self, was_closed: bool) -> None:
        """Wake a reader whose connection is lost.

        When the framing of a body is broken, aiohttp closes the connection and stops its timeouts, but does not wake
        the reader. A connection may also be closed in good order, with the end of the body still on its way to the
        reader; the error is therefore set one interval after the connection was first seen closed.
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
    """Return the exceptions that mean a failed request. The SOCKS library has base classes of its own."""
    socks: Any = sys.modules.get("aiohttp_socks")
    more = () if socks is None else (socks.ProxyError, socks.ProxyConnectionError, socks.ProxyTimeoutError)
    return (aiohttp.ClientError, HttpProcessingError, OSError, UnicodeError, *more)


def translate_failure(error: Exception, limits: HttpLimits) -> HttpError:
    """Turn a failure of aiohttp into an HttpError. Its text is a clause for the user, without a full stop."""
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
    """Return the reason in one short line. The texts of some errors go on with an excerpt of the data."""
    if isinstance(error, OSError) and (error.errno or 0) > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno or 0)
    text = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    return str(text).strip().splitlines()[0].rstrip(" :.")[:_MAX_REASON]
