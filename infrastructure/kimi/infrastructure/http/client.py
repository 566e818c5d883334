"""The HTTP client: one per process, with one TLS context and aiohttp's connection pool.

It follows no redirects, keeps no cookies and never retries a POST. It sends each request once (R-81) and closes the
connection at once when the caller is cancelled or leaves early. Neither aiohttp nor a certificate is loaded before the
first request or `warm`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio.to_thread

from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.contract import (
    HttpError,
    HttpLimits,
    HttpTimeout,
    PrivateAddressError,
    import_socks_library,
)

if TYPE_CHECKING:
    import ssl

    from kimi.infrastructure.http.session import HttpResponse, HttpSession

__all__ = [
    "HttpClient",
    "HttpError",
    "HttpLimits",
    "HttpTimeout",
    "PrivateAddressError",
    "import_socks_library",
    "make_tls_context",
    "parse_host",
]

_CA_FILES = ("/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Where systems keep their CA certificates. An interpreter that was built for another system looks elsewhere."""


class HttpClient:
    """Sends requests through the proxies that `environ` names and trusts the certificates that it names."""

    def __init__(
        self,
        environ: Mapping[str, str],
        limits: HttpLimits | None = None,
        is_allowed_address: Callable[[str], bool] | None = None,
    ) -> None:
        """`is_allowed_address` decides which addresses a request may connect to; without it, every address is allowed.

        A host name that resolves to a forbidden address, or a URL that contains one, raises PrivateAddressError. Names
        that a proxy resolves are not checked.
        """
        self._environ = environ
        self._is_allowed_address = is_allowed_address
        self._limits = limits or HttpLimits()
        self._tls: ssl.SSLContext | None = None
        self._sessions: dict[str | None, HttpSession] = {}
        """One session per SOCKS proxy. All other requests share the session under None."""
        self._is_warm = False
        self._warming = Lock()

    def warm(self, url: str = "") -> None:
        """Import what requests need and, for an https URL, build the TLS context. Call it in a worker thread.

        Raises:
            ConfigError: the certificates or the proxy of the environment cannot be used.
        """
        from kimi.infrastructure.http.late_certificates import certificates_when_used
        from kimi.infrastructure.http.proxy import find_proxy, is_socks

        with self._warming:
            with certificates_when_used():
                import_module("kimi.infrastructure.http.session")
            self._is_warm = True
            proxy = find_proxy(url, self._environ)
            if url.startswith("https:"):
                self._get_tls_context()
            if proxy is not None and is_socks(proxy):
                import_socks_library()

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: Sequence[bytes] = ()
    ) -> AsyncGenerator[HttpResponse]:
        """Send one request and yield its response as soon as the head has arrived.

        Only `Host` and `Content-Length` are added to `headers`. Leaving the context before the body has ended, without
        `release`, closes the connection at once.

        Raises:
            HttpError, HttpTimeout: the request failed, on entering or while the body is read.
            ConfigError: the URL, the certificates or the proxy of the environment cannot be used.
        """
        parse_host(url)  # before anything is imported for a URL that cannot be used
        if not self._is_warm:
            await anyio.to_thread.run_sync(self.warm, url)
        from kimi.infrastructure.http.proxy import find_proxy, is_socks
        from kimi.infrastructure.http.session import HttpRequest, is_parsable_url

        if not is_parsable_url(url):
            raise _make_url_error(url)

        proxy = find_proxy(url, self._environ)
        through_socks = proxy is not None and is_socks(proxy)
        tls = self._get_tls_context() if _is_https(url) or (proxy is not None and _is_https(proxy)) else None
        request = HttpRequest(method, url, headers, body, None if through_socks else proxy, tls)
        async with self._get_session(proxy if through_socks else None).open_response(request) as response:
            yield response

    async def close(self) -> None:
        """Close all connections, including those in use. The client can be used again afterwards."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()

    def _get_session(self, socks_proxy: str | None) -> HttpSession:
        from kimi.infrastructure.http.session import HttpSession

        if socks_proxy not in self._sessions:
            self._sessions[socks_proxy] = HttpSession(self._limits, socks_proxy, self._is_allowed_address)
        return self._sessions[socks_proxy]

    def _get_tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = make_tls_context(self._environ)
        return self._tls


def parse_host(url: str) -> str:
    """Return the host of an http(s) URL, in lower case.

    Raises:
        ConfigError: `url` is not an http(s) URL with a host.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or _has_blank(url):
        raise _make_url_error(url)
    return host


def _make_url_error(url: str) -> ConfigError:
    start, end = url.find("//"), url.rfind("@")  # what stands before an `@` may be a password
    shown = f"{url[:start]}//***{url[end:]}" if 0 <= start < end else url
    return ConfigError(f"'{shown}' cannot be used as an address: it must be an http:// or https:// URL with a host.")


def _has_blank(text: str) -> bool:
    return any(char <= " " or char == "\x7f" for char in text)


def _is_https(url: str) -> bool:
    return url[:6].lower() == "https:"


def make_tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that trusts `SSL_CERT_FILE` and `SSL_CERT_DIR`, or else the system's certificates.

    Raises:
        ConfigError: the named file cannot be read or holds no certificate.
    """
    import ssl

    cafile, capath = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    try:
        context = ssl.create_default_context(cafile=cafile, capath=capath)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"SSL_CERT_FILE names a file that cannot be used: {cafile}: {reason}.") from error
    if not cafile and not capath and not context.cert_store_stats()["x509_ca"]:
        _load_first_ca_file(context, _CA_FILES)
    return context


def _load_first_ca_file(context: ssl.SSLContext, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            context.load_verify_locations(path)
            return
        except OSError:
            continue
