"""The floor with two libraries of this program: its work, but HTTP by aiohttp, and files read in a thread of asyncio.

    uv run python -m benchmarks --reference "$PWD/.venv/bin/python $PWD/benchmarks/library_floor.py" steps

What it takes more than `floor.py` is the price of those two alone: it has no session, no checks, no cancellation. It
is the column `reference` then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import aiohttp
import floor


class Exchange(floor.Provider):
    """The connection to the provider, over aiohttp."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(url)
        self.url = f"{url}/chat/completions"
        self.loop = loop
        self.http: aiohttp.ClientSession | None = None

    def stream(self, messages: list[bytes]) -> Iterator[bytes]:
        """Blocks of a response, when it has ended; each holds whole events."""
        body = b'{"model":"m","stream":true,"messages":[' + b",".join(messages) + b"]}"
        yield from self.loop.run_until_complete(self.ask(body))

    async def ask(self, body: bytes) -> list[bytes]:
        """Send a request and return the blocks of its response."""
        if self.http is None:
            self.http = aiohttp.ClientSession()
        blocks: list[bytes] = []
        async with self.http.post(self.url, data=body) as response:
            rest = b""
            while block := await response.content.readany():
                whole, newline, rest = (rest + block).rpartition(b"\n")
                blocks.append(whole + newline)
        return blocks


def main() -> None:
    """Serve one session."""
    loop = asyncio.new_event_loop()
    read_file = floor.read_file

    def read_in_thread(arguments: dict[str, Any]) -> str:
        return loop.run_until_complete(loop.run_in_executor(None, read_file, arguments))

    floor.read_file = read_in_thread
    session = floor.Floor()
    session.provider = Exchange(os.environ["FLOOR_URL"], loop)
    session.serve()


if __name__ == "__main__":
    main()
