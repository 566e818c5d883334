"""The search and the fetch service of the vendor (tools spec 3.10, 3.11)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio

from kimi.application.settings.settings import ServiceSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient, HttpError, HttpTimeout
from kimi.infrastructure.http.headers import merge_headers, to_printable_ascii
from kimi.infrastructure.http.json_limits import find_json_excess

TOTAL_S: Final = 180.0
MAX_BYTES: Final = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result of a search; fields that the service leaves out are empty."""

    title: str
    url: str
    snippet: str
    content: str = ""
    date: str = ""


class ServiceStatusError(Exception):
    """The service answered with an HTTP status other than success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class ServiceAnswerError(Exception):
    """The response of the service is malformed; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class VendorService:
    """A service with its key, behind the HTTP layer of the process."""

    settings: ServiceSettings
    http: HttpClient
    user_agent: str

    async def search(self, query: str, limit: int, include_content: bool, call_id: str) -> Sequence[SearchResult]:
        """Search with the search service.

        Raises:
            ServiceStatusError, ServiceAnswerError, HttpError, HttpTimeout.
        """
        asked = {
            "text_query": query,
            "limit": limit,
            "enable_page_crawling": include_content,
            "timeout_seconds": 30,
        }
        return _parse_results(await self._post(asked, call_id, "application/json"))

    async def fetch(self, url: str, call_id: str) -> str:
        """Return the page as the fetch service renders it, in Markdown. Raises as `search`."""
        return (await self._post({"url": url}, call_id, "text/markdown")).decode("utf-8", "replace")

    async def _post(self, payload: dict[str, Any], call_id: str, accept: str) -> bytes:
        try:
            with anyio.fail_after(TOTAL_S):
                return await self._send(payload, call_id, accept)
        except TimeoutError:
            raise HttpTimeout(f"no complete answer within {TOTAL_S:g} seconds") from None
        except ConfigError as error:
            raise HttpError(str(error).rstrip(".")) from None

    async def _send(self, payload: dict[str, Any], call_id: str, accept: str) -> bytes:
        own = {
            "Content-Type": "application/json",
            "Accept": accept,
            "Authorization": f"Bearer {to_printable_ascii(self.settings.api_key)}",
            "User-Agent": self.user_agent,
            "X-Msh-Tool-Call-Id": to_printable_ascii(call_id),
        }
        headers = merge_headers(own, self.settings.custom_headers)
        async with self.http.request(
            "POST", self.settings.base_url, headers, [json.dumps(payload).encode()]
        ) as response:
            if response.status != 200:
                raise ServiceStatusError(response.status)
            body = await response.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise HttpError("the answer is larger than 10 MiB")
        return body


def _parse_results(body: bytes) -> list[SearchResult]:
    if (excess := find_json_excess(body)) is not None:
        raise ServiceAnswerError(f"the answer is {excess.removeprefix('of ')}")
    try:
        parsed: Any = json.loads(body)
        return [_parse_result(one) for one in parsed["search_results"]]
    except (ValueError, RecursionError) as error:
        raise ServiceAnswerError(str(error)) from None
    except (KeyError, TypeError) as error:
        raise ServiceAnswerError(
            f"the answer lacks {error}" if isinstance(error, KeyError) else "wrong shape"
        ) from None


def _parse_result(source: Any) -> SearchResult:
    if not isinstance(source, dict):
        raise TypeError
    fields = cast("dict[str, Any]", source)

    def text(key: str) -> str:
        value = fields.get(key)
        return value if isinstance(value, str) else ""

    return SearchResult(text("title"), text("url"), text("snippet"), text("content"), text("date"))
