"""Downloads of pictures, sounds and videos, for providers that require their content instead of a URL.

Size, number and time are limited. A failure is not an error but a clause that replaces the medium: a URL that has
stopped working must not make a conversation unusable.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urljoin

import anyio

from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient, HttpError
from kimi.infrastructure.http.headers import PRODUCT

MAX_BYTES = 15 << 20
"""The size limit of one medium. The service refuses requests with more than 20 MB of inline content."""

MAX_SECONDS = 30.0

_REDIRECTS = 4
_MAX_PARALLEL_FETCHES = 4
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_KINDS = ("image/", "audio/", "video/")

FetchedMedium = tuple[str, bytes] | str
"""Media type and content, or the reason why the download failed."""


async def fetch_media(http: HttpClient, urls: Sequence[str]) -> dict[str, FetchedMedium]:
    """Return the content of each URL, or the reason why there is none (a clause). A few downloads run at a time."""
    found: dict[str, FetchedMedium] = {}
    limiter = anyio.CapacityLimiter(_MAX_PARALLEL_FETCHES)

    async def fetch_one(url: str) -> None:
        async with limiter:
            found[url] = await fetch_medium(http, url)

    async with anyio.create_task_group() as group:
        for url in urls:
            group.start_soon(fetch_one, url)
    return found


async def fetch_medium(http: HttpClient, url: str) -> FetchedMedium:
    """Return the content of a URL, following redirects, or the reason why the download failed."""
    try:
        with anyio.fail_after(MAX_SECONDS):
            for _ in range(_REDIRECTS):
                answer = await _request_once(http, url)
                if not isinstance(answer, _RedirectTarget):
                    return answer
                url = urljoin(url, answer)
            return "its address leads in circles"
    except TimeoutError:
        return f"its address did not answer within {MAX_SECONDS:g} seconds"
    except (HttpError, ConfigError, ValueError) as error:  # ValueError: it redirects to an invalid URL
        return f"its address cannot be fetched: {str(error).rstrip('.')}"


class _RedirectTarget(str):
    """The URL that a response redirects to."""

    __slots__ = ()


async def _request_once(http: HttpClient, url: str) -> FetchedMedium | _RedirectTarget:
    async with http.request("GET", url, [("Accept", "image/*, audio/*, video/*"), ("User-Agent", PRODUCT)]) as answer:
        if answer.status in _REDIRECT_STATUSES and (location := answer.headers.get("location")):
            return _RedirectTarget(location)
        if answer.status != 200:
            return f"its address answered with HTTP {answer.status}"
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith(_KINDS):
            return f"its address holds {kind or 'something of no known type'}"
        content = await answer.read(MAX_BYTES + 1)
        return (kind, content) if len(content) <= MAX_BYTES else f"it has more than {MAX_BYTES >> 20} MB"
