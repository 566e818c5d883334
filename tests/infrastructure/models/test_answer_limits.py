"""Answers of providers that have no end, or cost more than their bytes (runtime spec 3.2)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable

import pytest

from kimi.application.ports import ChatModel
from kimi.application.settings.settings import ModelSettings, ServiceSettings
from kimi.domain.errors import ChatProviderError
from kimi.infrastructure.http.client import HttpClient, HttpError
from kimi.infrastructure.models.history.remote_media import fetch_medium
from kimi.infrastructure.models.model_listing import list_model_ids
from kimi.infrastructure.models.provider_types import open_model
from kimi.infrastructure.web.vendor_service import ServiceAnswerError, VendorService
from tests.support.program.memory import peak_growth
from tests.support.providers.chat_client import ask
from tests.support.providers.http_servers import Serve, layer, tcp_server

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON = STREAM.replace(b"text/event-stream", b"application/json")
ERROR = JSON.replace(b"200 OK", b"500 No")
PICTURE = STREAM.replace(b"text/event-stream", b"image/png")
VALUES = b"[" + b"{}," * (3 * MIB) + b"0]"


def endless(head: bytes, block: bytes) -> Serve:
    """Return a handler that never stops writing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            writer.write(block)
            await writer.drain()

    return serve


def whole(response: bytes) -> Serve:
    """Return a handler that writes one response."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        await writer.drain()

    return serve


async def failure_of(request: Awaitable[object]) -> Exception | None:
    """Return what a request raises."""
    try:
        await request
    except Exception as error:
        return error
    return None


def model(port: int, http: HttpClient, kind: str) -> ChatModel:
    """Return a model of this server."""
    settings = ModelSettings(
        provider_name="p", type=kind, model="M", base_url=f"http://127.0.0.1:{port}", api_key="k", max_context_size=9999
    )
    return open_model(settings, "session-1", http, lambda: "test/1", {"KIMI_SHARE_DIR": "/nowhere"})


@pytest.mark.spec("R-225")
@pytest.mark.parametrize("kind", ["kimi", "openai_responses", "anthropic", "gemini"])
@pytest.mark.parametrize(
    ("serve", "told"),
    [
        (endless(STREAM + b"data: ", b"x" * 65_536), "it sent an event of more than 16 MiB"),
        (endless(STREAM, b"x" * 65_536), "it sent an event of more than 16 MiB"),
        (endless(STREAM, b"data: x\n" * 8192), "it sent an event of more than 100000 lines"),
        (whole(STREAM + b"data: " + VALUES + b"\n\n"), "it sent an event of more than 200000 values"),
        (endless(ERROR, b"x" * 65_536), "x"),
        (endless(JSON, b"x" * 65_536), "instead of a stream of events"),
    ],
)
async def test_answer_without_an_end_is_an_error_at_bounded_cost(serve: Serve, told: str, kind: str) -> None:
    async with tcp_server(serve) as port, layer() as http:
        with peak_growth() as growth:
            failed = await failure_of(ask(model(port, http, kind)))
        assert isinstance(failed, ChatProviderError)
        assert told in str(failed)
        assert growth.mebibytes < 100


async def list_models(url: str, http: HttpClient) -> None:
    """Ask for the models of a server."""
    await list_model_ids(url, "key", http)


async def search(url: str, http: HttpClient) -> None:
    """Ask a search service."""
    await VendorService(ServiceSettings(base_url=url, api_key="k"), http, "test/1").search("x", 1, False, "c1")


async def fetch(url: str, http: HttpClient) -> None:
    """Ask a fetch service."""
    await VendorService(ServiceSettings(base_url=url, api_key="k"), http, "test/1").fetch("http://x.example", "c1")


@pytest.mark.spec("R-226")
@pytest.mark.parametrize("ask_for", [list_models, search, fetch])
@pytest.mark.parametrize(
    "serve",
    [
        endless(JSON, b"x" * 65_536),
        whole(JSON.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + gzip.compress(b"x" * (200 * MIB))),
    ],
)
async def test_body_without_an_end_is_an_error_at_bounded_cost(
    ask_for: Callable[[str, HttpClient], Awaitable[object]], serve: Serve
) -> None:
    async with tcp_server(serve) as port, layer() as http:
        with peak_growth() as growth:
            failed = await failure_of(ask_for(f"http://127.0.0.1:{port}", http))
        assert isinstance(failed, HttpError)
        assert growth.mebibytes < 60


async def test_answers_of_many_values_are_not_parsed() -> None:
    short = b"[" + b"{}," * MIB + b"0]"
    async with tcp_server(whole(JSON + short)) as port, layer() as http:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(HttpError, match="too long"):
            await list_models(url, http)
        with pytest.raises(ServiceAnswerError, match="more than 200000 values"):
            await search(url, http)


async def test_picture_without_an_end_is_left_out() -> None:
    async with tcp_server(endless(PICTURE, b"x" * 65_536)) as port, layer() as http:
        with peak_growth() as growth:
            assert await fetch_medium(http, f"http://127.0.0.1:{port}/a.png") == "it has more than 15 MB"
        assert growth.mebibytes < 60
