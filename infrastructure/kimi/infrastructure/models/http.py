"""The HTTP client: one per process, with one TLS context and one pool of connections.

What it does not do: redirects, cookies, retries. It sends each request once (runtime spec R-81) and closes the
connection at once when the caller is cancelled or leaves early. Nothing is imported or built before the first
request, or before `warm` is called from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import anyio

from kimi.domain.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from kimi.infrastructure.models.http_connection import Connection
    from kimi.infrastructure.models.proxy import Proxy

_CA_FILES = ("/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Where systems keep their certificates, for an interpreter that was built for another system's place."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Seconds to connect (name, TCP, proxy and TLS together), seconds without data, seconds to keep an idle one."""

    connect_s: float = 15.0
    read_s: float = 300.0
    idle_s: float = 30.0
    idle_connections: int = 8


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL points: the part of it that a connection is made for."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


class HttpResponse:
    """The head of a response, and its body in blocks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        """Names in lower case."""
        self._inflate = _decompressor(self.headers.get("content-encoding", ""))

    @property
    def framed(self) -> bool:
        """Does the response say itself where its body ends, so that a loss cannot pass for the end?"""
        return not self._connection.ends_by_close

    async def block(self) -> bytes:
        """The next block of the body as it comes, compression undone; empty at the end.

        Raises HttpError and HttpTimeout of `http_connection`.
        """
        while block := await self._connection.read():
            data = self._inflate(block) if self._inflate is not None else block
            if data:
                return data
        return b""

    async def read(self, limit: int = 65_536) -> bytes:
        """The body, at most about `limit` bytes of it."""
        blocks: list[bytes] = []
        while limit > 0 and (block := await self.block()):
            blocks.append(block)
            limit -= len(block)
        return b"".join(blocks)

    def release(self) -> None:
        """What may still come is of no interest: the connection can serve another request once it has ended."""
        self._connection.release()


class HttpLayer:
    """Makes requests, through the proxies that `environ` names, trusting the certificates it names."""

    def __init__(self, environ: Mapping[str, str], limits: HttpLimits | None = None) -> None:
        self._environ = environ
        self._limits = limits or HttpLimits()
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[tuple[Origin, Proxy | None], list[Connection]] = {}
        self._busy: set[Connection] = set()

    def warm(self, url: str = "") -> None:
        """Import what requests need and, for an https URL, build the TLS context. Safe to call from a thread."""
        for module in ("http_connection", "proxy"):
            import_module(f"kimi.infrastructure.models.{module}")
        if url.startswith("https:"):
            self._context()

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: Sequence[bytes] = ()
    ) -> AsyncGenerator[HttpResponse]:
        """Send one request and give its response as soon as its head is there.

        `Host` and `Content-Length` are added. Leaving the context before the body has ended (and
        without `release`) closes the connection at once.

        Raises:
            HttpError, HttpTimeout: of `http_connection`, on entering and while reading.
            ConfigError: the URL or the proxy of the environment cannot be used.
        """
        from kimi.infrastructure.models.proxy import proxy_for

        origin, target = split_url(url)
        proxy = proxy_for(origin.scheme, origin.host, origin.port, self._environ)
        if proxy is not None and proxy.kind != "socks5" and origin.scheme == "http":
            target = f"http://{origin.authority}{target}"
            if proxy.authorization is not None:
                headers = [*headers, ("Proxy-Authorization", proxy.authorization)]
        head = request_head(method, target, origin, headers, sum(map(len, body)))
        connection = self._take_idle(origin, proxy) or await self._connect(origin, proxy)
        self._busy.add(connection)
        try:
            await connection.exchange([head, *body])
            yield HttpResponse(connection)
        finally:
            self._busy.discard(connection)
            self._put_back(connection, origin, proxy)

    async def close(self) -> None:
        """Close every connection, also those in use. The layer can be used again afterwards."""
        for connection in [*self._busy, *(one for pool in self._idle.values() for one in pool)]:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)

    # --- the pool -----------------------------------------------------------------------------------------------

    def _take_idle(self, origin: Origin, proxy: Proxy | None) -> Connection | None:
        pool = self._idle.get((origin, proxy), [])
        oldest = asyncio.get_running_loop().time() - self._limits.idle_s
        while pool:
            connection = pool.pop()
            if connection.reusable and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def _put_back(self, connection: Connection, origin: Origin, proxy: Proxy | None) -> None:
        pool = self._idle.setdefault((origin, proxy), [])
        if connection.settled and connection.may_rest and len(pool) < self._limits.idle_connections:
            connection.rest()
            pool.append(connection)
        else:
            connection.abort()

    # --- connecting ---------------------------------------------------------------------------------------------

    async def _connect(self, origin: Origin, proxy: Proxy | None) -> Connection:
        from kimi.infrastructure.models.http_connection import Connection, HttpError, HttpTimeout

        connection = Connection(self._limits.read_s)
        tls = self._context() if origin.scheme == "https" else None
        try:
            with anyio.fail_after(self._limits.connect_s):
                if proxy is None:
                    await _connect_direct(connection, origin, tls)
                else:
                    await self._connect_through(proxy, connection, origin, tls)
        except TimeoutError:
            raise HttpTimeout(f"no connection to {origin.host} within {self._limits.connect_s:g} seconds") from None
        except (OSError, EOFError, UnicodeError) as error:
            through = f" through the proxy {proxy.host}" if proxy else ""
            raise HttpError(f"cannot connect to {origin.host}{through}: {_os_text(error)}") from error
        return connection

    async def _connect_through(
        self, proxy: Proxy, connection: Connection, origin: Origin, tls: ssl.SSLContext | None
    ) -> None:
        from kimi.infrastructure.models.proxy import open_tunnel

        to_proxy = self._context() if proxy.kind == "https" else None
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port, ssl=to_proxy)
        try:
            if proxy.kind == "socks5" or tls is not None:
                await open_tunnel(proxy, origin.host, origin.port, reader, writer)
            await _adopt(connection, writer, origin, tls)
        except BaseException:
            writer.transport.abort()
            raise

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = tls_context(self._environ)
        return self._tls


async def _connect_direct(connection: Connection, origin: Origin, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    name = origin.host if tls is not None else None
    await loop.create_connection(
        lambda: connection, origin.host, origin.port, ssl=tls, server_hostname=name, happy_eyeballs_delay=0.25
    )


async def _adopt(
    connection: Connection, writer: asyncio.StreamWriter, origin: Origin, tls: ssl.SSLContext | None
) -> None:
    """Go on with the transport of `writer`, inside TLS if there is a context."""
    transport: asyncio.WriteTransport | None = writer.transport
    if tls is not None:
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(writer.transport, connection, tls, server_hostname=origin.host)
    else:
        writer.transport.set_protocol(connection)
    if transport is None:
        raise OSError("the proxy closed the connection")
    connection.adopt(cast(asyncio.Transport, transport), writer)


def split_url(url: str) -> tuple[Origin, str]:
    """A URL as origin and request target.

    Raises:
        ConfigError: it is no http(s) URL with a host.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or _has_blank(url):
        raise ConfigError(f"'{url}' cannot be used as an address: it must be an http:// or https:// URL with a host.")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Origin(parts.scheme, host, port or (443 if parts.scheme == "https" else 80)), target


def _has_blank(text: str) -> bool:
    return any(char <= " " or char == "\x7f" for char in text)


def request_head(
    method: str, target: str, origin: Origin, headers: Sequence[tuple[str, str]], content_length: int
) -> bytes:
    """The request line and the headers; a `Host` among them replaces ours. Their text must have been checked."""
    lines = [f"{method} {target} HTTP/1.1"]
    if not any(name.lower() == "host" for name, _ in headers):
        lines.append(f"Host: {origin.authority}")
    lines += [f"{name}: {value}" for name, value in headers if name.lower() != "content-length"]
    lines += [f"Content-Length: {content_length}", "", ""]
    return "\r\n".join(lines).encode()


def tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """A client context that trusts `SSL_CERT_FILE` (and `SSL_CERT_DIR`), else what the system trusts.

    Raises:
        ConfigError: the named file cannot be read or holds no certificate.
    """
    import ssl

    cafile, capath = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    try:
        context = ssl.create_default_context(cafile=cafile, capath=capath)
    except OSError as error:
        raise ConfigError(f"SSL_CERT_FILE names a file that cannot be used: {cafile}: {_os_text(error)}.") from error
    if not cafile and not capath and not context.cert_store_stats()["x509_ca"]:
        _load_first(context, _CA_FILES)
    return context


def _load_first(context: ssl.SSLContext, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            context.load_verify_locations(path)
            return
        except OSError:
            continue


def _decompressor(encoding: str) -> Callable[[bytes], bytes] | None:
    """The function that undoes `Content-Encoding`, although we ask for none; None for identity."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return None
    import zlib

    from kimi.infrastructure.models.http_connection import HttpError

    inflate = zlib.decompressobj(47).decompress

    def inflated(block: bytes) -> bytes:
        try:
            return inflate(block)
        except zlib.error as error:
            raise HttpError(f"the answer is not what its Content-Encoding says ({error})") from error

    return inflated


def _os_text(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "the proxy closed the connection"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
