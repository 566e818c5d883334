"""Streams of small pieces: short turns, long texts, long arguments; does memory stay flat?"""

from __future__ import annotations

import json
import math
import time
from statistics import median

from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import OURS, Candidate, world
from tests.support.dialects.table import ROWS


def turn(bench: Bench) -> list[Row]:
    """Turns of five pieces; the first one pays for what is imported late, the others are steady."""
    turns = 20 if bench.quick else 60

    def measure(candidate: Candidate) -> Measured:
        with world(candidate) as place, place.wire() as client:
            client.initialize()
            time.sleep(0.5)
            first = client.prompt("hi").seconds
            client.prompt("hi")
            cpu = client.cpu_s()
            times = [client.prompt("hi").seconds for _ in range(turns)]
            return {"first": first, "turn": median(times), "cpu": (client.cpu_s() - cpu) / turns}

    found = bench.medians("turn", measure)
    return [
        ms("first turn, 5 pieces", found, "first"),
        ms("turn, 5 pieces", found, "turn", Target(value=5)),
        ms("processor time of a turn", found, "cpu", Target(value=3)),
    ]


def text(bench: Bench) -> list[Row]:
    """Text in pieces of 20 characters, each in an HTTP chunk of its own; the growth from 20 000 to 50 000."""
    sizes = (5_000, 20_000) if bench.quick else (5_000, 20_000, 50_000)
    rows: list[Row] = []
    times: list[float] = []
    for size in sizes:

        def measure(candidate: Candidate, size: int = size) -> Measured:
            with world(candidate, {"text": size}) as place, place.wire() as client:
                client.initialize()
                time.sleep(0.5)
                done = client.prompt("go")
                assert done.parts == size, f"{done.parts} pieces of {size}"
                return {"all": done.seconds, "first": done.first_s, "each": done.seconds / size}

        found = bench.medians(f"text {size}", measure)
        target = Target(ratio=2.5) if size >= 20_000 else None
        rows.append(ms(f"text, {size} pieces", found, "all", target, growth=("text", size)))
        rows.append(ms("  until the first piece", found, "first"))
        rows.append(row("  per piece", "µs", found, "each", scale=1e6))
        times.append(found["kimi"]["all"])
    if len(sizes) == 3:
        exponent = math.log(times[2] / times[1]) / math.log(sizes[2] / sizes[1])
        rows.append(Row("text, growth exponent 20k → 50k", "", exponent, target=Target(value=1.05)))
    return rows


def dialects(bench: Bench) -> list[Row]:
    """Text as each type of provider streams it; the type at hand costs about what `openai_legacy` does."""
    size = 5_000 if bench.quick else 20_000
    rows: list[Row] = []
    for provider_type in ROWS:
        kind = provider_type.type

        def measure(candidate: Candidate, kind: str = kind) -> Measured:
            with world(candidate, {"text": size, "kind": kind}, kind=kind) as place, place.wire() as client:
                client.initialize()
                time.sleep(0.5)
                done = client.prompt("go")
                assert done.parts == size, f"{done.parts} pieces of {size}"
                return {"each": done.seconds / size}

        found = bench.medians(f"dialects {kind}", measure, among=(OURS,))
        rows.append(row(f"text from {kind}, per piece", "µs", found, "each", Target(value=40), scale=1e6))
    return rows


def arguments(bench: Bench) -> list[Row]:
    """Arguments of a call in pieces of 20 characters."""
    sizes = (5_000,) if bench.quick else (5_000, 20_000, 50_000)
    rows: list[Row] = []
    for size in sizes:
        spec: Json = {"calls": [["Nothing", json.dumps({"text": "x" * (20 * size - 13)})]], "piece": 20}

        def measure(candidate: Candidate, spec: Json = spec) -> Measured:
            with world(candidate, spec) as place, place.wire() as client:
                client.initialize()
                time.sleep(0.5)
                return {"all": client.prompt("go").seconds}

        found = bench.medians(f"arguments {size}", measure)
        rows.append(ms(f"arguments, {size} pieces", found, "all", Target(ratio=3), growth=("arguments", size)))
    return rows


def memory(bench: Bench) -> list[Row]:
    """What 50 000 pieces and then 100 turns leave behind."""
    size, turns = (10_000, 30) if bench.quick else (50_000, 100)

    def measure(candidate: Candidate) -> Measured:
        with world(candidate, {"text": size}) as place, place.wire() as client:
            client.initialize()
            client.prompt("go")
            before = client.memory_mb()
            client.prompt("go")
            client.prompt("go")
            pieces = client.memory_mb() - before
        with world(candidate) as place, place.wire() as client:
            client.initialize()
            for _ in range(5):
                client.prompt("hi")
            before = client.memory_mb()
            for _ in range(turns):
                client.prompt("hi")
            return {"pieces": pieces, "turns": client.memory_mb() - before}

    found = bench.medians("memory", measure)
    return [
        row(f"memory, twice {size} pieces more", "MB", found, "pieces", Target(value=20)),
        row(f"memory, {turns} turns more", "MB", found, "turns", Target(value=3)),
    ]


CASES: dict[str, Case] = {"turn": turn, "text": text, "dialects": dialects, "arguments": arguments, "memory": memory}
