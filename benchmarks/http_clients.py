"""What HTTP clients cost, and so why aiohttp was chosen.

    uv run --with httpx --with httpcore python -m benchmarks.http_clients

Per client: the import (milliseconds, modules, on top of what this program has loaded anyway), then CPU microseconds
per event of a streamed answer: HTTP, splitting into events and JSON. Last the same through the whole model adapter.
Clients that are not installed are left out.

aiohttp is the cheapest per event and the dearest to import. Events come by the thousand while somebody waits; the
import is done in a thread after the handshake was answered, so nobody does. httpcore alone is lighter than httpx, but
leaves proxies of the environment and decompression to its user. A client of our own (on httptools) took 1.4 µs and
no import to speak of, but was 700 lines to keep right: TLS, proxies, SOCKS, a pool.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic_core import from_json

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import user_message
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.http.sse import DONE, SseParser
from kimi.infrastructure.models.provider_types import open_model

EVENTS = 20_000
REPEATS = 5


async def httpx(url: str) -> AsyncIterator[bytes]:
    """https://www.python-httpx.org"""
    library: Any = import_module("httpx")
    async with library.AsyncClient() as client, client.stream("POST", url, content=b"{}") as response:
        async for block in response.aiter_raw():
            yield block


async def httpcore(url: str) -> AsyncIterator[bytes]:
    """What httpx is built on."""
    library: Any = import_module("httpcore")
    async with library.AsyncConnectionPool() as pool, pool.stream("POST", url, content=b"{}") as response:
        async for block in response.aiter_stream():
            yield block


async def aiohttp(url: str) -> AsyncIterator[bytes]:
    """https://docs.aiohttp.org"""
    library: Any = import_module("aiohttp")
    async with library.ClientSession() as session, session.post(url, data=b"{}") as response:
        while block := await response.content.readany():
            yield block


async def events_of(blocks: AsyncIterator[bytes]) -> int:
    """How many JSON events there are."""
    parser, count = SseParser(), 0
    async for block in blocks:
        for payload in parser.feed(block):
            if payload != DONE:
                from_json(payload)
                count += 1
    return count


async def items_of_the_adapter(base_url: str) -> int:
    """How many items the whole adapter gives."""
    http, count = HttpClient({}), 0
    settings = ModelSettings(provider_name="bench", type="openai_legacy", model="m", base_url=base_url)
    model = open_model(settings, "s", http, lambda: "kimi-wire/0", {})
    async with model.stream("", [user_message("go")], [], 0) as items:
        async for _ in items:
            count += 1
    await http.close()
    return count


def cost(run: Callable[[], Any]) -> float:
    """The best of some runs, in microseconds of CPU per event."""
    best = float("inf")
    for _ in range(REPEATS):
        started = time.process_time()
        count = asyncio.run(run())
        best = min(best, (time.process_time() - started) / count * 1e6)
    return best


IMPORT = """
import sys, time
import kimi.interfaces.bootstrap.containers, asyncio
before, started = len(sys.modules), time.process_time()
import {name}
print(f"{{(time.process_time() - started) * 1e3:.0f}} ms, {{len(sys.modules) - before}} modules")
"""


def import_cost(name: str) -> str:
    """What the import costs in a fresh process; the best of some."""
    command = [sys.executable, "-c", IMPORT.format(name=name)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for _ in range(REPEATS)]
    return min(runs, key=lambda text: int(text.split()[0]))


def installed() -> list[Callable[[str], AsyncIterator[bytes]]]:
    """The clients that can be measured here."""
    return [client for client in (httpx, httpcore, aiohttp) if find_spec(client.__name__) is not None]


def main() -> None:
    """Print a line per client, and one per client and framing."""
    for client in installed():
        print(f"import: {client.__name__}: {import_cost(client.__name__)}")
    for framing in (None, 65_536):
        command = [sys.executable, "-m", "tests.support.providers.provider_server", "--chunks", str(EVENTS)]
        command += [] if framing is None else ["--framing", str(framing)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            base_url = server.stdout.readline().strip() if server.stdout else ""
            report("one event per HTTP chunk" if framing is None else "64 KiB per HTTP chunk", base_url)
            server.terminate()


def report(framing: str, base_url: str) -> None:
    """The figures for one server."""
    url = f"{base_url}/chat/completions"
    for client in installed():
        print(f"{framing}: {client.__name__}: {cost(lambda client=client: events_of(client(url))):.2f} µs")
    print(f"{framing}: the whole adapter: {cost(lambda: items_of_the_adapter(base_url)):.2f} µs")


if __name__ == "__main__":
    main()
