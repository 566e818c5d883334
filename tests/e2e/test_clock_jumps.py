"""The clock of the machine is set forth or back while a session runs: turns go on, and its log stays in order."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.program.jumping_clock import VARIABLE
from tests.support.program.wire_process import Place, approve
from tests.support.providers.scripts import call, shell, step

DAY_S = 86_400


@pytest.mark.skipif(sys.platform != "linux", reason="the warm process with another clock is Linux only")
@pytest.mark.spec("R-266")
@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S, 20 * 365 * DAY_S, -1e10], ids=["+1d", "-1d", "+20y", "1709"])
def test_session_goes_on_when_the_clock_jumps(place: Place, jump_s: float) -> None:
    task = shell("b1", "echo task", run_in_background=True, description="a task")
    waits = call("o1", "TaskOutput", {"task_id": "none", "block": False})
    place.script(
        step("text: one", shell("c1", "echo hello"), task), step("text: two", waits), "text: three", "text: four"
    )
    place.environ[VARIABLE] = str(jump_s)
    with place.wire("--yolo") as kimi:
        assert kimi.prompt("begin", approve)["result"] == {"status": "finished"}
        assert kimi.prompt("on", approve)["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    times = [json.loads(json.dumps(line))["timestamp"] for line in place.recorded() if "timestamp" in line]
    assert len(times) > 8
    assert times == sorted(times)
    place.script("text: resumed")
    with place.wire("--continue") as kimi:
        replayed = kimi.response(kimi.call("replay"))["result"]
        assert replayed["events"] == len(times)
        assert kimi.prompt("again")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert len(place.session_dirs()) == 1
