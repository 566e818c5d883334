"""The provider of a benchmark, as a process: `python -m benchmarks.provider`; its first line is the base URL.

It reads to the end of its input what it shall answer, as JSON: `{"text": n}` answers each request with n pieces of
about 20 characters, in the dialect of the provider type that `"kind"` names, or with `"pause_s"` between the pieces;
`{"calls": [[name, arguments], …], "piece": n}` answers one request after the other with a call, or with text where the
list says null and after its end; then it begins anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from tests.support.dialects.script import Answer
from tests.support.dialects.table import ROWS
from tests.support.providers.provider_server import (
    Event,
    Reply,
    call_events,
    dumps,
    end_events,
    provider,
    stream_reply,
    text_reply,
)


def replies(spec: dict[str, Any]) -> list[Reply]:
    """The replies of a specification, in order."""
    if "kind" in spec:
        return [_in_dialect(spec["kind"], spec["text"])]
    if "text" in spec:
        return [replace(stream_reply(spec["text"], None), event_delay_s=spec.get("pause_s", 0))]
    calls: list[tuple[str, str] | None] = [*spec["calls"], None]
    piece = spec.get("piece", 4096)
    return [_call(f"call-{at}", *call, piece) if call else text_reply("done") for at, call in enumerate(calls)]


def _in_dialect(kind: str, count: int) -> Reply:
    """The events of one letter, its letter made a piece and repeated."""
    dialect = next(row.dialect for row in ROWS if row.type == kind)
    whole = dialect.reply(Answer(text="§"))
    at = next(index for index, event in enumerate(whole.events) if "§" in str(event))
    start, end = whole.events[:at], whole.events[at + 1 :]
    pieces = [_with_text(whole.events[at], f"piece number {number:06d} ") for number in range(count)]
    return replace(whole, events=[*start, *pieces, *end])


def _with_text(event: Event, text: str) -> Event:
    return dumps(event).replace("§".encode(), text.encode())


def _call(call_id: str, name: str, arguments: str, piece: int) -> Reply:
    return Reply([*call_events(0, call_id, name, arguments, piece), *end_events("tool_calls")])


async def serve(answers: Sequence[Reply]) -> None:
    """Serve until killed; requests are forgotten at once, for their bodies add up."""
    endless = cycle(answers)
    async with provider() as server:

        def choose(request: object) -> Reply:
            server.requests.clear()
            return next(endless)

        server.choose = choose
        for _ in answers:
            await _ask(server.base_url)
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


async def _ask(base_url: str) -> None:
    """Take one answer, so that the server has encoded it before the first measured request."""
    host, _, port = base_url.removeprefix("http://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    tail = b""
    while not tail.endswith(b"0\r\n\r\n"):
        tail = tail[-5:] + await reader.read(1 << 20)
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(replies(json.load(sys.stdin))))
