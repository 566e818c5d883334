"""Where the microseconds of a streamed piece go: each layer by itself, in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

from benchmarks.figures import Bench, Case, Row
from kimi.application.conversation.event_channel import Delivery, EventChannel
from kimi.application.conversation.event_recorder import EventRecorder
from kimi.domain.content.parts import TextPart
from kimi.domain.content.stream import PartMerger
from kimi.infrastructure.http.sse import SseParser
from kimi.infrastructure.models.openai.chat_stream import REASONING_CONTENT, ChatChunkReader
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.rpc.wire_events import WireEventEncoder
from tests.support.providers.provider_server import chunk, dumps

T = TypeVar("T")

PIECES = 20_000


def layers(bench: Bench) -> list[Row]:
    """Microseconds per piece, from the body of the response to the line for the client."""
    payload = dumps(chunk({"content": "piece number 000001 "}))
    body = b"data: %b\n\n" % payload * PIECES
    parts = [TextPart("piece number 000001 ")] * PIECES
    deliveries = [Delivery(part, None) for part in parts]
    known: dict[str, Callable[[], object]] = {
        "events out of the body (sse)": lambda: SseParser().feed(body),
        "event to part (chat_stream)": lambda: _each(ChatChunkReader(REASONING_CONTENT).read, [payload] * PIECES),
        "parts together (stream)": lambda: _each(PartMerger().push, parts),
        "recorded (recorder)": lambda: _each(_recorder().record, parts),
        "through the channel (channel)": lambda: asyncio.run(_through(EventChannel(PIECES), deliveries)),
        "part to line (translate)": lambda: _translated(deliveries),
    }
    return [Row(f"layer: {name}", "µs", _microseconds(bench, run)) for name, run in known.items()]


def _microseconds(bench: Bench, run: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(max(3, bench.repeats)):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return median(times) / PIECES * 1e6


def _each(work: Callable[[T], object], items: Sequence[T]) -> None:
    for item in items:
        work(item)


def _recorder() -> EventRecorder:
    files = asyncio.run(MemoryStore("").create("bench"))
    return EventRecorder(files, time.time)


async def _through(channel: EventChannel, deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        channel.put_nowait(delivery)
        await channel.wait_for_capacity()
    await channel.receive()


def _translated(deliveries: list[Delivery]) -> bytes:
    translator = WireEventEncoder()
    lines = (translator.encode(delivery, strict=False) for delivery in deliveries)
    return b"".join(line for line in lines if line is not None)


CASES: dict[str, Case] = {"layers": layers}
