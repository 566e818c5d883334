"""Many sessions of one agent at once: fair, and flat in memory (acp spec 4.2, A-111).

Twenty sessions with 200 updates a second each: for a moment by default, for ten minutes with `KIMI_LONG_TESTS=1`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kimi.domain.content.parts import TextPart
from tests.support.acp.client import acp_client, kind_of, prompt, using
from tests.support.acp.schema import AgentLines
from tests.support.fakes import FakeModel
from tests.support.program.acp_process import AcpProcess, acp_process, text_prompt
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply

SECONDS = 600 if os.environ.get("KIMI_LONG_TESTS") == "1" else 1
SESSIONS, RATE = 20, 200


def together(kimi: AcpProcess, prompts: dict[str, str], look: Callable[[Json], None]) -> int:
    """Send all prompts and read to their answers; how many updates came."""
    waiting = {kimi.request("session/prompt", text_prompt(session, text)) for session, text in prompts.items()}
    updates = 0
    while waiting:
        line = kimi.next_line()
        kimi.lines.clear()  # ten minutes of them
        kimi.raw.clear()
        look(line)
        updates += line.get("method") == "session/update"
        if "method" not in line:
            assert line["result"]["stopReason"] == "end_turn"
            waiting.remove(line["id"])
    return updates


def resident_mb(kimi: AcpProcess) -> float:
    """Memory of the process in MB."""
    pages = Path(f"/proc/{kimi.process.pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.timeout(SECONDS + 120)
def test_twenty_sessions_that_stream_all_the_time_do_not_grow(place: Place) -> None:
    """Turns of a second; then each history is cleared, for what a conversation holds is no growth of the agent."""
    pieces = [f"piece number {number:06d} " for number in range(RATE)]
    check = AgentLines()
    with (
        loopback(text_reply(*pieces, event_delay_s=1 / RATE)) as server,
        acp_process(place.provider(server.base_url)) as kimi,
    ):
        kimi.shake_hands()
        sessions = [kimi.new_session(place) for _ in range(SESSIONS)]

        def second(look: Callable[[Json], None]) -> int:
            count = together(kimi, dict.fromkeys(sessions, "go"), look)
            together(kimi, dict.fromkeys(sessions, "/clear"), look)
            server.requests.clear()
            return count

        second(lambda line: check.received(line) if line.get("method") else None)
        level, began, updates = resident_mb(kimi), time.monotonic(), 0
        while time.monotonic() - began < SECONDS:
            updates += second(lambda line: None)
        took = time.monotonic() - began
        print(f"{updates} updates in {took:.0f} s, {resident_mb(kimi) - level:.1f} MB more")
        assert updates > SESSIONS * took * RATE * 0.1, f"{updates} updates in {took:.0f} s"
        assert resident_mb(kimi) < level + 10
        assert kimi.finish() == 0


@pytest.mark.anyio
async def test_sessions_that_prompt_at_once_begin_and_end_together(place: Place) -> None:
    """64 sessions whose models have all of 500 pieces ready: each begins long before the first of them is done.

    First turns go before: they wait for the disk, each for its own.
    """
    place.script("text: unused")
    pieces = [TextPart(f"piece {number} ") for number in range(500)]
    streams = using(lambda session: FakeModel([[TextPart("first ")], pieces]))
    async with acp_client(place, adapt=streams) as client:
        await client.shake_hands()
        sessions = [await client.new_session(place) for _ in range(64)]
        for session in sessions:
            await client.say(session, "go")
        messages = [client.message("session/prompt", prompt(session, "go")) for session in sessions]
        before = len(client.lines)
        await client.send(*messages)
        for message in messages:
            assert (await client.answer_of(message["id"]))["result"]["stopReason"] == "end_turn"
        lines = client.lines[before:]
    text = [line for line in lines if kind_of(line) == "agent_message_chunk"]
    first: dict[str, int] = {}
    for at, line in enumerate(lines):
        if kind_of(line) == "agent_message_chunk":
            first.setdefault(line["params"]["sessionId"], at)
    done = [at for at, line in enumerate(lines) if "method" not in line]
    said = {session: client.said(session) for session in sessions}
    assert set(said.values()) == {"first " + "".join(piece.text for piece in pieces)}
    assert len(text) >= 64 * 4, "long streams come in several pieces"
    assert max(first.values()) < min(done)
    assert max(first.values()) < len(lines) * 0.5
