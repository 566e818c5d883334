"""Turns that answer at once, turns of many steps, and steps that ask: what each costs beside its floor."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from benchmarks.cases.acp_talk import AcpClient
from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import FLOOR, Candidate, World, world

EDITOR_FLOOR = (sys.executable, str(Path(__file__).parents[1] / "turn_floor.py"))

_ASKED = b'"method":"session/request_permission"'
_UPDATE = b'"method":"session/update"'


class AnsweringEditor(AcpClient):
    """An editor that allows what it is asked, each time once, and notes when it was asked."""

    asked_at: list[float]

    def run_turn(self, session_id: str) -> float:
        """Send a prompt and read to its answer; seconds."""
        self.asked_at = []
        began = time.perf_counter()
        wanted = b'"id":%d,"result"' % self.prompt_in(session_id)
        while True:
            for line in self._lines_now():
                if _ASKED in line:
                    self._allow(line)
                elif _UPDATE not in line and wanted in line:
                    return time.perf_counter() - began

    def _allow(self, line: bytes) -> None:
        self.asked_at.append(time.perf_counter())
        request = json.loads(line)
        option = next(one for one in request["params"]["options"] if one["kind"] == "allow_once")
        outcome = {"outcome": "selected", "optionId": option["optionId"]}
        self._send({"jsonrpc": "2.0", "id": request["id"], "result": {"outcome": outcome}})


def _editor_in(place: World, candidate: Candidate) -> AnsweringEditor:
    command = EDITOR_FLOOR if candidate == FLOOR else (*candidate.command, "acp")
    return AnsweringEditor(command, place.work, place.environ)


def at_once(bench: Bench) -> list[Row]:
    """Turns whose whole answer, one piece, is there at once: what a turn costs beside the model."""
    turns = 30 if bench.quick else 100

    def measure(candidate: Candidate) -> Measured:
        with world(candidate, {"text": 1}) as place, place.wire() as client:
            client.initialize()
            time.sleep(0.5)
            client.prompt("hi")
            cpu = client.cpu_s()
            wire = median(client.prompt("hi").seconds for _ in range(turns))
            cpu = (client.cpu_s() - cpu) / turns
        with world(candidate, {"text": 1}) as place, _editor_in(place, candidate) as editor:
            editor.shake_hands()
            session_id = editor.new_session(place.work)
            editor.settle()
            editor.run_turn(session_id)
            seconds = median(editor.run_turn(session_id) for _ in range(turns))
        return {"wire": wire, "cpu": cpu, "editor": seconds}

    found = bench.medians("at-once", measure)
    return [
        ms("turn, answered at once, wire", found, "wire", Target(ratio=1.8)),
        ms("  its processor time", found, "cpu"),
        ms("turn, answered at once, editor", found, "editor", Target(ratio=1.8)),
    ]


def steps(bench: Bench) -> list[Row]:
    """Turns of many steps, each of which reads another small file; is the last quarter as quick as the first?"""
    rows: list[Row] = []
    for count in (50,) if bench.quick else (25, 50, 100, 200, 400):

        def prepare(work: Path, count: int = count) -> None:
            for number in range(count):
                text = "".join(f"line {line} of file {number}\n" for line in range(40))
                (work / f"file{number}.txt").write_text(text)

        spec: Json = {"calls": [["ReadFile", json.dumps({"path": f"file{number}.txt"})] for number in range(count)]}

        def measure(candidate: Candidate, spec: Json = spec, count: int = count) -> Measured:
            with world(candidate, spec, prepare) as place, place.wire() as client:
                client.initialize()
                time.sleep(0.5)
                cpu = client.cpu_s()
                turn = client.prompt("go")
                assert len(turn.outputs) == count
                assert "line 0" in turn.outputs[-1], turn.outputs
                return {**_per_step(turn.times("StepBegin")), "cpu": (client.cpu_s() - cpu) / count}

        found = bench.medians(f"steps {count}", measure)
        is_named = count == 200  # the size that the figure is promised for
        each = ms(f"step, in a turn of {count}", found, "each", Target(ratio=3) if is_named else None, ("steps", count))
        rows.append(each)
        growth_target = Target(value=1.15) if is_named else None
        rows.append(row(f"  last quarter to first, of {count}", "x", found, "growth", growth_target))
        rows.append(ms(f"  processor time of a step, of {count}", found, "cpu"))
    return rows


def _per_step(begins: list[float]) -> Measured:
    """The mean step, and how much slower the last quarter is than the first; the very first steps warm up."""
    lengths = [later - earlier for earlier, later in pairwise(begins)][2:]
    quarter = len(lengths) // 4
    return {"each": mean(lengths), "growth": sum(lengths[-quarter:]) / sum(lengths[:quarter])}


def approvals(bench: Bench) -> list[Row]:
    """An editor that is asked before each step's command: from one question to the next."""
    count = 20 if bench.quick else 50
    spec: Json = {"calls": [["Shell", json.dumps({"command": f"true {number}"})] for number in range(count)]}

    def measure(candidate: Candidate) -> Measured:
        with world(candidate, spec) as place, _editor_in(place, candidate) as editor:
            editor.shake_hands()
            session_id = editor.new_session(place.work)
            editor.settle()
            editor.run_turn(session_id)
            assert len(editor.asked_at) == count, editor.asked_at
            return {"step": median(later - earlier for earlier, later in pairwise(editor.asked_at))}

    found = bench.medians("approvals", measure)
    return [ms("step with an approval in an editor", found, "step", Target(ratio=2))]


CASES: dict[str, Case] = {"at-once": at_once, "steps": steps, "approvals": approvals}
