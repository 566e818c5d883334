"""`kimi batch --ray`: the same file and the same results on a cluster of this machine (runtime spec 10.6).

One cluster serves the whole test, because its start takes seconds; `.ci/batch-ray` runs it with Ray installed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import pytest

from tests.support.program.batches import Batch, batch_of, slow_tasks
from tests.support.program.processes import all_gone, comes_true, find_below, marked
from tests.support.program.wire_process import Place

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (`uv sync --group ray`)")

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
TASKS, DELAY_MS, KILLS = (200, 200, 10) if LONG else (24, 100, 1)

_CLUSTER = """
import sys, ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""


@contextmanager
def cluster(place: Place) -> Generator[str, None, None]:
    """A cluster of its own on this machine, which does not know the share directory; the address of its head.

    It has the home of the place, where Ray keeps the token that lets others in.
    """
    inherited = {name: value for name, value in place.full_environ().items() if name != "KIMI_SHARE_DIR"}
    environ = {**inherited, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    pipe = subprocess.PIPE
    head = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environ
    )
    with head:
        assert head.stdout is not None
        lines = (line.decode().strip() for line in head.stdout)
        yield next(line for line in lines if line.replace(".", "").replace(":", "").isdecimal())


def find_workers(place: Place) -> list[int]:
    """The worker processes: those with this share directory, but for the coordinator."""
    return [pid for pid in marked(f"KIMI_SHARE_DIR={place.share}") if is_worker(pid)]


def is_worker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"kimi.interfaces.batch.worker" in file.read()
    except OSError:
        return False


@pytest.mark.spec("R-446", "R-447")
@pytest.mark.timeout(900 if LONG else 240)
def test_a_cluster_gives_the_same_results_whatever_is_killed(place: Place) -> None:
    place.environ["RAY_AUTH_MODE"] = "token"
    answers = {f"t{number}": f"answer {number}" for number in range(TASKS)}
    batch = replace(batch_of(place, *slow_tasks(TASKS, DELAY_MS)), is_cold=True)
    with cluster(place) as address:
        options = ("-j", "8", "--workers", "2", "--ray", address)
        kill_coordinators(batch, options)
        assert comes_true(lambda: not find_workers(place), 30)
        starts = len(batch.records("started"))
        with batch.started(*options) as coordinator:
            # A worker that has said nothing yet is none that can be lost; eight attempts are those of both workers.
            assert comes_true(lambda: len(batch.records("started")) >= starts + 8, 60)
            worker, *_ = find_workers(place)
            os.kill(worker, signal.SIGKILL)
            assert comes_true(lambda: len(batch.records("ended")) > 0, 30)
            lose_an_actor(place)
            assert coordinator.wait(240) == 0
        assert batch.answers() == answers
        assert {one["reason"] for one in batch.records("ended")} == {"lost"}
        assert comes_true(lambda: not find_workers(place), 20)
        assert batch.run(*options)[0] == 0
        assert batch.answers() == answers
    local = replace(batch, is_cold=False)
    for path in (local.results_path, local.journal_path):
        path.unlink()
    assert local.run("-j", "8")[0] == 0
    assert local.answers() == answers
    assert all_gone(str(place.share))


def kill_coordinators(batch: Batch, options: tuple[str, ...]) -> None:
    moments = random.Random(11)
    for kill in range(KILLS):
        with batch.started(*options) as coordinator:
            batch.wait_for_results(TASKS * kill // (2 * KILLS) + 1)
            time.sleep(moments.uniform(0, 2 * DELAY_MS / 1000))
            coordinator.kill()


def lose_an_actor(place: Place) -> None:
    """Kill the process that holds a worker, as when its node is lost; the worker must end by itself."""
    assert comes_true(lambda: len(find_workers(place)) > 0, 30)
    worker = find_workers(place)[0]
    with open(f"/proc/{worker}/stat") as file:
        holder = int(file.read().rpartition(")")[2].split()[1])
    assert worker in find_below(holder)
    os.kill(holder, signal.SIGKILL)
    assert comes_true(lambda: not is_worker(worker), 10)


def test_a_cluster_that_does_not_answer_is_told(place: Place) -> None:
    batch = replace(batch_of(place, *slow_tasks(1, 1)), is_cold=True)
    status, stderr = batch.run("--ray", "127.0.0.1:1")
    assert status == 1
    assert "No Ray cluster answers at '127.0.0.1:1'" in " ".join(stderr.split())
