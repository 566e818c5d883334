"""Compose the tools that reach the web (tools spec 3.10, 3.11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kimi.application.ports import Tool
from kimi.application.settings.settings import ServiceSettings, Settings
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.infrastructure.http.client import HttpClient
    from kimi.infrastructure.web.vendor_service import VendorService


def has_search_service(settings: Settings) -> bool:
    """Whether a search service is configured."""
    return settings.web.search is not None


def build_search_web(settings: Settings, http: HttpClient) -> Tool:
    """Return SearchWeb over the configured service; without one its calls only report that."""
    from kimi.infrastructure.tools.web.search_web import SearchWebTool

    return SearchWebTool(_build_web_service(settings.web.search, http).search if settings.web.search else None)


def build_fetch_url(settings: Settings, http: HttpClient, environ: Mapping[str, str]) -> Tool:
    """Return FetchURL, over the configured service if there is one."""
    from kimi.infrastructure.tools.web.fetch_url import FetchUrlTool
    from kimi.infrastructure.web.page_fetcher import PageFetcher

    web = settings.web
    by_service = _build_web_service(web.fetch, http).fetch if web.fetch else None
    fetcher = PageFetcher(environ, None) if web.allow_private else PageFetcher(environ)
    return FetchUrlTool(fetcher.fetch, by_service, asks_each_address=web.ask)


def _build_web_service(settings: ServiceSettings, http: HttpClient) -> VendorService:
    from kimi.infrastructure.http.headers import format_user_agent
    from kimi.infrastructure.web.vendor_service import VendorService

    return VendorService(settings, http, format_user_agent(__version__))
