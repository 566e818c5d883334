"""The tools that reach the web, composed (tools spec 3.10, 3.11). Part of the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kimi.application.ports import Tool
from kimi.application.settings.settings import ServiceSettings, Settings
from kimi.domain.agents.agent import built_in
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.infrastructure.http.client import HttpLayer
    from kimi.infrastructure.web.services import Service

(SEARCH_TOOL,) = built_in("SearchWeb")
"""Only where a search service is configured."""


def search_web(settings: Settings, http: HttpLayer) -> Tool:
    """SearchWeb over the configured service; without one it can only say so."""
    from kimi.infrastructure.tools.web.search_web import SearchWeb

    return SearchWeb(_service(settings.web.search, http).search if settings.web.search else None)


def fetch_url(settings: Settings, http: HttpLayer, environ: Mapping[str, str]) -> Tool:
    """FetchURL, over the configured service if there is one."""
    from kimi.infrastructure.tools.web.fetch_url import FetchUrl
    from kimi.infrastructure.web.pages import PageFetcher

    web = settings.web
    by_service = _service(web.fetch, http).fetch if web.fetch else None
    fetcher = PageFetcher(environ, None) if web.allow_private else PageFetcher(environ)
    return FetchUrl(fetcher.fetch, by_service, ask=web.ask)


def _service(settings: ServiceSettings, http: HttpLayer) -> Service:
    from kimi.infrastructure.http.headers import user_agent_text
    from kimi.infrastructure.web.services import Service

    return Service(settings, http, user_agent_text(__version__))
