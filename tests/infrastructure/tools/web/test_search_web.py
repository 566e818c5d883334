"""SearchWeb against a search service on the loopback interface."""

from __future__ import annotations

import json
import socket
from typing import Any

import anyio
import pytest
from aiohttp import web

from kimi.application.settings.settings import ServiceSettings
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.tools.web.search_web import SearchWebTool
from kimi.infrastructure.web.vendor_service import ServiceAnswerError, VendorService
from tests.support.tool_calls import call
from tests.support.web_server import WebServer, page, web_server

pytestmark = pytest.mark.anyio

FOUND = {
    "search_results": [
        {
            "site_name": "Example",
            "title": "One",
            "url": "https://example.com/1",
            "snippet": "first",
            "content": "",
            "date": "2026-01-02",
            "icon": "",
            "mime": "text/html",
        },
        {"title": "Two", "url": "https://example.com/2", "snippet": "second", "content": "z" * 9_000},
    ]
}


async def searched_there(server: WebServer, limits: HttpLimits | None = None, **arguments: Any) -> ToolReturnValue:
    """What comes of a search there."""
    settings = ServiceSettings(base_url=server.url("/search"), api_key="sk-x", custom_headers={"X-Own": "yes"})
    http = HttpClient({}, limits)
    try:
        return await call(SearchWebTool(VendorService(settings, http, "test/1").search), {"query": "cats", **arguments})
    finally:
        await http.close()


async def searched(body: object, status: int = 200, **arguments: Any) -> tuple[WebServer, ToolReturnValue]:
    text = body if isinstance(body, str) else json.dumps(body)
    async with web_server({"/search": page(text, "application/json", status)}) as server:
        return server, await searched_there(server, **arguments)


async def _stall(request: web.BaseRequest) -> web.StreamResponse:
    await anyio.sleep(30)
    return web.Response()


@pytest.mark.spec("T-85")
async def test_search_sends_request_and_returns_output_or_errors() -> None:
    server, result = await searched(FOUND, limit=3, include_content=True)
    (request,), (body,) = server.requests, server.bodies
    assert json.loads(body) == {
        "text_query": "cats",
        "limit": 3,
        "enable_page_crawling": True,
        "timeout_seconds": 30,
    }
    assert request.method == "POST"
    headers = {name: request.headers[name] for name in ("Authorization", "X-Msh-Tool-Call-Id", "X-Own")}
    assert headers == {"Authorization": "Bearer sk-x", "X-Msh-Tool-Call-Id": "call", "X-Own": "yes"}
    assert (result.is_error, result.message) == (False, "")
    assert result.output == (
        "Title: One\nDate: 2026-01-02\nURL: https://example.com/1\nSummary: first\n\n---\n\n"
        f"Title: Two\nDate: \nURL: https://example.com/2\nSummary: second\n\n{'z' * 8_000}[...truncated]\n\n"
    )
    server, _ = await searched(FOUND)
    assert json.loads(server.bodies[0])["limit"] == 5
    assert json.loads(server.bodies[0])["enable_page_crawling"] is False

    without = await call(SearchWebTool(None), {"query": "cats"})
    assert without.message == "Search service is not configured. You may want to try other methods to search."
    assert without.display == (BriefBlock("Search service not configured"),)
    _, failed = await searched("", status=503)
    assert failed.message == (
        "Failed to search. Status: 503. This may indicate that the search service is currently unavailable."
    )
    assert failed.display == (BriefBlock("Failed to search"),)
    for wrong in ("not json", "{}", "[]", '{"search_results": [1]}', '{"search_results": 1}'):
        _, unread = await searched(wrong)
        assert unread.message.startswith("Failed to parse search results. Error: "), wrong
        assert unread.message.endswith(" This may indicate that the search service is currently unavailable.")
        assert unread.display == (BriefBlock("Failed to parse search results"),)
    async with web_server({"/search": _stall}) as slow:
        late = await searched_there(slow, HttpLimits(read_s=0.05))
    assert late.message == "Search request timed out. The search service may be slow or unavailable."
    assert late.display == (BriefBlock("Search request timed out"),)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = WebServer(closed.getsockname()[1])
    refused = await searched_there(gone)
    assert refused.message == (
        "Search request failed: cannot connect: Connection refused. The search service may be unavailable."
    )
    assert refused.display == (BriefBlock("Search request failed"),)


@pytest.mark.spec("R-275")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_service_that_refuses_the_key_or_the_program_is_not_called_unavailable(status: int) -> None:
    _, refused = await searched("", status=status)
    hint = "The service does not accept the key, does not cover this, or admits certain programs only."
    assert refused.message == f"Failed to search. Status: {status}. {hint}"


@pytest.mark.parametrize("address", ["nonsense", "http://[::1", "ftp://x/"])
async def test_invalid_address_and_unusual_call_id_are_handled(address: str) -> None:
    http = HttpClient({})
    try:
        service = VendorService(ServiceSettings(base_url=address, api_key="sk\r\nX: y"), http, "test/1")
        result = await call(SearchWebTool(service.search), {"query": "cats"})
        assert result.message.startswith("Search request failed: ")
        async with web_server({"/search": page("{}", "application/json")}) as server:
            service = VendorService(
                ServiceSettings(base_url=server.url("/search"), api_key="sk\r\nX: y"), http, "test/1"
            )
            with pytest.raises(ServiceAnswerError):
                await service.search("cats", 1, False, "call\r\nX: y")
        assert "X" not in server.requests[0].headers
    finally:
        await http.close()
