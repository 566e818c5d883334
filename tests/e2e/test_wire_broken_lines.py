"""Lines that are broken in every way, for the wire and for ACP: each is answered as the protocol says (R-242).

Most are written to servers in this process, thousands in a second; some to the real program.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.program.wire_process import Place
from tests.support.providers.scripts import error_of
from tests.support.robustness.agent_visit import visit_agent
from tests.support.robustness.expectations import Ledger, expect_on_wire
from tests.support.robustness.mutations import make_line
from tests.support.robustness.visit import Visitor
from tests.support.robustness.wire_visit import visit_wire, wire_messages

Visit: TypeAlias = Callable[[random.Random, Path, int], Awaitable[Ledger]]

LINES = 100_000 if os.environ.get("KIMI_LONG_TESTS") == "1" else 12_500
"""Lines of each of the eight tests; all of them together are 100,000 in the ordinary run."""

WIRE_EVENTS = {
    "TurnBegin",
    "TurnEnd",
    "ToolCall",
    "ToolResult",
    "ApprovalRequest",
    "ToolCallRequest",
    "QuestionRequest",
}
AGENT_UPDATES = {"agent_message_chunk", "tool_call", "tool_call_update", "session/request_permission", "plan"}


def report(ledger: Ledger) -> None:
    """Say what was tried, for those who run with `-s`."""
    print(f"{ledger.lines} lines, errors {dict(ledger.codes)}, seen {dict(ledger.seen)}")


@pytest.mark.spec("R-242")
@pytest.mark.anyio
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
async def test_each_broken_line_on_the_wire_is_answered(tmp_path: Path, seed: int) -> None:
    ledger = await visit_wire(random.Random(seed), tmp_path, LINES)
    report(ledger)
    assert ledger.lines >= LINES
    assert ledger.seen.keys() >= WIRE_EVENTS, "the lines led to turns, calls and requests of every kind"
    assert set(ledger.codes) == {-32700, -32600, -32601, -32602, -32000, -32003}


@pytest.mark.spec("R-242")
@pytest.mark.anyio
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
async def test_each_broken_line_of_an_editor_is_answered(tmp_path: Path, seed: int) -> None:
    ledger = await visit_agent(random.Random(seed), tmp_path, LINES)
    report(ledger)
    assert ledger.lines >= LINES
    assert ledger.seen.keys() >= AGENT_UPDATES, "the lines led to turns, calls and requests of every kind"
    assert set(ledger.codes) >= {-32700, -32600, -32601, -32602, -32603, -32002}


@pytest.mark.parametrize("visit", [visit_wire, visit_agent])
def test_short_visits_are_answered_from_any_seed(visit: Visit) -> None:
    """Hypothesis chooses the seeds and reports the one that fails.

    It cannot make the other choices: how many there are depends on what the server has sent by then.
    """

    @settings(max_examples=25)
    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory() as root:
            anyio.run(visit, random.Random(seed), Path(root), 20)

    check()


def test_the_process_answers_broken_lines(place: Place) -> None:
    source = random.Random(3)
    place.script(*["text: ok"] * 2000)
    send, unused = anyio.create_memory_object_stream[bytes](1)
    ledger = Ledger(expect_on_wire)
    makers = wire_messages(Visitor(source, ledger, send))
    with place.wire() as kimi:
        for number in range(40):
            data = b"".join(make_line(source, makers) for _ in range(50)) + b"\n"
            ledger.send(data)
            kimi.send_bytes(data)
            mark = f"mark {number}"
            kimi.send({"id": mark, "method": "nope"})
            assert error_of(kimi.response(mark))[0] == -32601
        kimi.end_input()
        kimi.rest()
        assert kimi.wait() == 0
    ledger.end()
    answered = Counter(str(line["id"]) for line in kimi.lines if "method" not in line)
    for line in kimi.lines:
        if not str(line.get("id")).startswith("mark "):
            ledger.receive(line)
    ledger.check()
    assert sum(answered.values()) > 1000
    send.close()
    unused.close()
