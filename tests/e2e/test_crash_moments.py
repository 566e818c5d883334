"""Killed at any moment of a turn, a session goes on: nothing that was seen is lost, no call is left open.

Sixty moments by default, a thousand with `KIMI_LONG_TESTS=1`. The moments are the same in every run as far as a
seed can say: after how many lines of output, and how much later, the process is killed.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.broken_turns import LINES_OF_A_TURN, Chain, chains
from tests.support.program.acp_process import acp_process, text_prompt
from tests.support.program.wire_process import Json
from tests.support.providers.strict import text_of

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
MOMENTS = 1000 if LONG else 60
WORKERS = 4


@pytest.mark.timeout(1800 if LONG else 300)
@pytest.mark.spec("R-63", "W-133")
def test_session_killed_at_any_moment_resumes_with_all_sent_events(tmp_path: Path) -> None:
    with chains(tmp_path, WORKERS) as workers, ThreadPoolExecutor(WORKERS) as pool:
        runs = [pool.submit(chain.go, list(range(number, MOMENTS, WORKERS))) for number, chain in enumerate(workers)]
        for run in runs:
            run.result()


def play_in_an_editor(chain: Chain, numbers: list[int]) -> None:
    """Kill the process of an editor at each moment of a turn, and go on with the session in the next process."""
    for number in numbers:
        with acp_process(chain.place) as kimi:
            kimi.shake_hands()
            session_id = kimi.new_session(chain.place)
            kimi.request("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
            call_id = kimi.request("session/prompt", text_prompt(session_id, f"run {number};"))
            for _ in range(chain.dice.randrange(LINES_OF_A_TURN)):
                if kimi.next_line().get("id") == call_id:
                    break
            time.sleep(chain.dice.random() ** 3 * 0.03)
            kimi.close()
            shown = [json.loads(line) for line in kimi.raw if line.endswith(b"\n")]
        with acp_process(chain.place) as kimi:
            kimi.shake_hands()
            where: Json = {"sessionId": session_id, "cwd": str(chain.place.work), "mcpServers": []}
            if "error" in kimi.ask("session/load", where):
                assert not shows_a_turn(shown), "a session is lost in which the editor saw an answer begin"
                continue
            answer = kimi.say(session_id, f"check {number};")
            assert answer.get("result", {}).get("stopReason") == "end_turn", (number, answer)
        answers = [one["tool_call_id"] for one in chain.sent_with(f"check {number};") if one["role"] == "tool"]
        for call in finished_calls(shown):
            assert any(call.endswith(known) for known in answers), f"the result of {call} is lost"
        for trace in chain.place.work.glob(f"trace-{number}-*"):
            assert trace.name.removeprefix("trace-") in answers, f"{trace.name} was made by a call that is lost"


def shows_a_turn(lines: list[Json]) -> bool:
    """Whether an editor saw that the agent has begun to answer."""
    kinds = {line["params"]["update"]["sessionUpdate"] for line in lines if line.get("method") == "session/update"}
    return bool(kinds & {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"})


def finished_calls(lines: list[Json]) -> list[str]:
    """Return the ids of the calls whose end an editor saw; those inside of a subagent are its own, and left out."""
    updates = [line["params"]["update"] for line in lines if line.get("method") == "session/update"]
    ended = [one for one in updates if one.get("status") in ("completed", "failed")]
    return [one["toolCallId"] for one in ended if one["toolCallId"].count("/") == 1]


@pytest.mark.timeout(1800 if LONG else 300)
@pytest.mark.spec("R-264")
def test_an_editors_session_killed_at_any_moment_keeps_all_it_saw(tmp_path: Path) -> None:
    with chains(tmp_path, WORKERS) as workers, ThreadPoolExecutor(WORKERS) as pool:
        rows = [range(number, MOMENTS // 2, WORKERS) for number in range(WORKERS)]
        runs = [pool.submit(play_in_an_editor, chain, list(row)) for chain, row in zip(workers, rows, strict=True)]
        for run in runs:
            run.result()


@pytest.mark.parametrize("lines", [1, 2, 4, 8, 16, 24])
def test_continue_goes_on_after_a_kill_in_the_very_first_turn(tmp_path: Path, lines: int) -> None:
    with chains(tmp_path, 1) as (chain,):
        with chain.place.wire("--yolo") as kimi:
            kimi.call("prompt", {"user_input": "run 1;"})
            for _ in range(lines):
                kimi.next_line()
            kimi.close()
            shown = [json.loads(line) for line in kimi.raw if line.endswith(b"\n")]
        with chain.place.wire("--yolo", "--continue") as kimi:
            assert kimi.prompt("check 1;")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
        sent = chain.sent_with("check 1;")
        begun = any(line.get("params", {}).get("type") == "StepBegin" for line in shown)
        assert not begun or any("run 1;" in text_of(one) for one in sent if one["role"] == "user")
