"""Long turns and long histories."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from statistics import median

from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import Candidate, world


def history(bench: Bench) -> list[Row]:
    """A stored session: how soon it is ready, and what a turn on it costs over the request that must be sent."""
    rows: list[Row] = []
    for messages in (1_000,) if bench.quick else (1_000, 3_000, 10_000):

        def measure(candidate: Candidate, messages: int = messages) -> Measured:
            with world(candidate) as place:
                place.put_history(messages)
                with place.wire(resume=True) as client:
                    ready = client.initialize()
                    memory = client.memory_mb()
                    time.sleep(0.5)
                    first = client.prompt("hi").seconds
                    later = [client.prompt("hi").seconds for _ in range(5)]
                    return {"ready": ready, "memory": memory, "first": first, "later": median(later)}

        found = bench.medians(f"history {messages}", measure)
        rows.append(ms(f"resume {messages} messages, spawn → ready", found, "ready", Target(value=400)))
        rows.append(row("  memory then", "MB", found, "memory"))
        rows.append(ms("  first turn", found, "first"))
        over = Target(over=30 if messages == 10_000 else 10)
        rows.append(ms(f"  later turns on {messages} messages", found, "later", over, growth=("history", messages)))
    return rows


def asking(bench: Bench) -> list[Row]:
    """External tools and approvals: from the client's answer to the result of the call."""
    count = 20 if bench.quick else 50
    tool: Json = {"name": "lookup", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}
    external: Json = {"calls": [["lookup", json.dumps({"n": number})] for number in range(count)]}
    shell: Json = {"calls": [["Shell", json.dumps({"command": f"true {number}"})] for number in range(count)]}

    def measure(candidate: Candidate) -> Measured:
        found: dict[str, float] = {}
        for name, spec in (("external", external), ("approval", shell)):
            with world(candidate, spec) as place, place.wire(ask=True) as client:
                client.initialize(external_tools=[tool])
                time.sleep(0.5)
                turn = client.prompt("go", _external if name == "external" else _approve)
                begins = turn.times("StepBegin")
                waits = zip(turn.times("answered"), turn.times("ToolResult"), strict=True)
                found[name] = median(result - answered for answered, result in waits)
                found[f"{name} step"] = median(later - earlier for earlier, later in pairwise(begins))
        return found

    found = bench.medians("asking", measure)
    return [
        ms("external tool: answer → result", found, "external", Target(over=1)),
        ms("  step", found, "external step", Target(value=10)),
        ms("approval: answer → result of `true`", found, "approval", Target(over=5)),
        ms("  step", found, "approval step"),
    ]


def _external(params: Json) -> Json:
    value: Json = {"is_error": False, "output": "found", "message": "", "display": []}
    return {"tool_call_id": params["payload"]["id"], "return_value": value}


def _approve(params: Json) -> Json:
    return {"request_id": params["payload"]["id"], "response": "approve"}


CASES: dict[str, Case] = {"history": history, "asking": asking}
