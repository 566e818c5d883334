"""Fetches a page without a service: allowed addresses, redirects, size and time (tools spec 3.11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

import anyio

from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import (
    HttpClient,
    HttpError,
    HttpLimits,
    HttpTimeout,
    PrivateAddressError,
    parse_host,
)
from kimi.infrastructure.http.proxy import find_proxy
from kimi.infrastructure.web.addresses import is_ip_literal, is_public

if TYPE_CHECKING:
    from kimi.infrastructure.http.hosts import ParsedAddress

MAX_BYTES: Final = 10 * 1024 * 1024
MAX_REDIRECTS: Final = 5
TOTAL_S: Final = 180.0
LIMITS: Final = HttpLimits(connect_s=15.0, send_s=15.0, read_s=60.0)

MAX_URL_CHARS: Final = 16_384

_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = (
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36"),
    ("Accept", "text/html,application/xhtml+xml,text/markdown,text/plain,application/json;q=0.9,*/*;q=0.5"),
    ("Accept-Language", "en,*;q=0.5"),
)
"""Many sites refuse clients that do not look like a browser."""


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A response: the HTTP status, the bare content type in lower case, its charset if it is stated, the body."""

    status: int
    content_type: str
    charset: str | None
    body: bytes


class PageDenied(Exception):
    """The page is not fetched; the text says why, for the model. `brief` is for the user."""

    def __init__(self, text: str, brief: str) -> None:
        super().__init__(text)
        self.brief = brief


NOT_PUBLIC_TEXTS: Final = ("Failed to fetch URL: the address is not public.", "Blocked address")


@dataclass(frozen=True, slots=True)
class PageFetcher:
    """Fetches pages from allowed addresses, each over its own connections, and follows redirects of the same host.

    `is_allowed_address` decides which addresses are allowed; None allows all. Without a proxy the connection goes to
    exactly the address that was checked. With a proxy of the environment, the proxy resolves the name: names are
    checked before only as far as this machine can resolve them.
    """

    environ: Mapping[str, str]
    is_allowed_address: Callable[[str], bool] | None = is_public
    limits: HttpLimits = LIMITS

    async def fetch(self, url: str) -> FetchedPage:
        """Fetch the page at `url`. Redirects are followed that stay on its host.

        Raises:
            PageDenied: the scheme, the address or the size is not allowed, the page redirects to another host, or there
                are too many redirects.
            HttpError, HttpTimeout: the request failed.
        """
        http = HttpClient(self.environ, self.limits, self.is_allowed_address)
        try:
            with anyio.fail_after(TOTAL_S):
                return await self._follow_redirects(http, url)
        except TimeoutError:
            raise HttpTimeout(f"not complete within {TOTAL_S:g} seconds") from None
        except ConfigError as error:
            raise HttpError(str(error).rstrip(".")) from None
        finally:
            # Shielded: a cancelled or timed-out fetch must close its connections, too.
            with anyio.CancelScope(shield=True):
                await http.close()

    async def _follow_redirects(self, http: HttpClient, url: str) -> FetchedPage:
        for _ in range(MAX_REDIRECTS + 1):
            # Every redirect is checked: a public page must not lead to a private address.
            await self._check_address(url)
            found = await self._request_once(http, url)
            if isinstance(found, FetchedPage):
                return found
            target = _resolve_redirect(url, found)
            if parse_page_address(target).host != parse_page_address(url).host:
                raise PageDenied(
                    f"Failed to fetch URL: the page redirects to another host: {parse_page_address(target).url} . The "
                    "user approves each host: call FetchURL again with that address if it is the right one.",
                    "Redirects to another host",
                )
            url = target
        raise PageDenied(f"Failed to fetch URL: more than {MAX_REDIRECTS} redirects.", "Too many redirects")

    async def _check_address(self, url: str) -> None:
        """Refuse an address that is not allowed, as far as that is known before connecting."""
        host = _parse_allowed_host(url).rstrip(".")
        if self.is_allowed_address is None:
            return
        if is_ip_literal(host):
            allowed = self.is_allowed_address(host)
        else:
            allowed = find_proxy(url, self.environ) is None or await _has_allowed_addresses(
                host, self.is_allowed_address
            )
        if not allowed:
            raise PageDenied(*NOT_PUBLIC_TEXTS)

    async def _request_once(self, http: HttpClient, url: str) -> FetchedPage | str:
        """Send one request; return the page, or the target of a redirect."""
        try:
            async with http.request("GET", url.partition("#")[0], _HEADERS) as response:
                target = response.headers.get("Location")
                if response.status in _REDIRECTS and target:
                    return target
                body = await response.read(MAX_BYTES + 1)
        except PrivateAddressError:
            raise PageDenied(*NOT_PUBLIC_TEXTS) from None
        if len(body) > MAX_BYTES:
            raise PageDenied("Failed to fetch URL: the page is larger than 10 MiB.", "Page too large")
        kind, charset = _parse_content_type(response.headers.get("Content-Type", ""))
        return FetchedPage(response.status, kind, charset, body)


async def _has_allowed_addresses(host: str, is_allowed_address: Callable[[str], bool]) -> bool:
    """Return whether a host name resolves only to allowed addresses, or cannot be resolved on this machine."""
    try:
        found = await anyio.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return True
    return all(is_allowed_address(str(address[0])) for *_, address in found)


def parse_page_address(url: str) -> ParsedAddress:
    """Return the host of a page, as approvals and rules name it, and the address as it is sent.

    Raises:
        PageDenied: the scheme is not allowed, or the address is too long.
        HttpError: the address cannot be understood.
    """
    from kimi.infrastructure.http.hosts import parse_address

    _parse_allowed_host(url)
    if len(url) > MAX_URL_CHARS:
        raise PageDenied(f"Failed to fetch URL: it has more than {MAX_URL_CHARS} characters.", "Address too long")
    try:
        return parse_address(url)
    except ConfigError:
        raise HttpError("the address cannot be understood") from None


def _parse_allowed_host(url: str) -> str:
    """Return the host of a URL that may be fetched."""
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https"):
        text = f"Failed to fetch URL: only http and https addresses can be fetched, not '{scheme[:20]}'."
        raise PageDenied(text, "Unsupported scheme")
    try:
        return parse_host(url)
    except ConfigError:
        error = HttpError("the address cannot be understood")
        raise error from None


def _resolve_redirect(url: str, location: str) -> str:
    """Resolve the redirect to `location`; user name and password were for the first address only."""
    try:
        parts = urlsplit(urljoin(url, location))
    except ValueError:
        raise HttpError("it leads to an address that cannot be understood") from None
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _parse_content_type(value: str) -> tuple[str, str | None]:
    kind, *parameters = (part.strip() for part in value.split(";"))
    named = dict(part.lower().split("=", 1) for part in parameters if "=" in part)
    return kind.lower(), named.get("charset", "").strip("\"' ") or None
