"""Parallel subagents with approvals open, cancelled at random moments: nothing hangs, nothing stays behind."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from tests.support.program.processes import comes_true, marked
from tests.support.program.wire_process import Json, Place, approval
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Recorded, Reply, call_reply, text_reply
from tests.support.providers.strict import fault_of, strictly

ROUNDS = 200
REPORT = "The subagent has looked at everything that it was asked to look at and reports what it found. " * 4


def speak(request: Recorded) -> Reply:
    """The root starts two subagents, each runs a command, then reports."""
    messages: list[dict[str, Any]] = request.json["messages"]
    answered = messages[-1]["role"] == "tool"
    if "You are a subagent" in json.dumps(messages[0]):
        return text_reply(REPORT) if answered else call_reply(("s1", "Shell", '{"command": "sleep 0.05; echo done"}'))
    if answered or "plain" in json.dumps(messages[-1]):
        return text_reply("Both have reported.")
    return call_reply(*(
        (f"a{number}", "Agent", json.dumps({"description": "look", "prompt": f"look at part {number}"}))
        for number in range(2)
    ))  # fmt: skip


@pytest.mark.timeout(180)
def test_subagents_cancelled_at_random_leave_no_processes_or_open_calls(place: Place) -> None:
    dice = random.Random(20)
    mark = f"storm-{time.monotonic_ns()}"
    place.environ["KIMI_TEST_MARK"] = mark
    with loopback() as server:
        server.choose = strictly(speak)
        place.provider(server.base_url)
        with place.wire(cold=True) as kimi:
            kimi.initialize(client={"name": "storm"})
            statuses: list[str] = []
            for _ in range(ROUNDS):
                prompt = kimi.call("prompt", {"user_input": "go"})
                cancel_at = time.monotonic() + dice.random() * 0.25
                cancelled = False
                while True:
                    if not cancelled and time.monotonic() >= cancel_at:
                        kimi.call("cancel")
                        cancelled = True
                    if kimi.idle and not cancelled:
                        time.sleep(0.002)
                        continue
                    line = kimi.next_line()
                    if "method" not in line and line.get("id") == prompt:
                        statuses.append(line["result"]["status"])
                        break
                    if line.get("method") == "request" and dice.random() < 0.7:
                        answer = dice.choice(["approve", "reject"])
                        result = approval(line["params"], answer)
                        kimi.send({"jsonrpc": "2.0", "id": line["id"], "result": result})
                kimi.lines.clear()
            assert statuses.count("cancelled") > ROUNDS // 4
            assert kimi.prompt("plain")["result"] == {"status": "finished"}
            assert comes_true(lambda: marked(mark) == [kimi.process.pid]), "commands are still running"
            assert kimi.finish() == 0
        assert [fault for request in server.requests if (fault := fault_of(request.json["messages"]))] == []
    stored: list[Json] = place.context()
    calls = [call["id"] for record in stored for call in record.get("tool_calls") or ()]
    answers = [record["tool_call_id"] for record in stored if record["role"] == "tool"]
    assert calls == answers
