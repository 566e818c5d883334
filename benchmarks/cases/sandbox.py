"""What it costs to confine a command, by each way that works on this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.figures import Bench, Case, Measured, Row, Target, ms
from benchmarks.worlds import OURS, Candidate
from kimi.application.settings.settings import SandboxSettings
from kimi.domain.permissions.path_rules import PathScopes
from kimi.infrastructure.sandbox.bubblewrap import find_bubblewrap, wrap_by_bubblewrap
from kimi.infrastructure.sandbox.landlock import find_landlock, wrap_by_landlock
from kimi.infrastructure.sandbox.mechanisms import Mechanism
from kimi.infrastructure.sandbox.sandbox import Sandbox

_COMMAND = ("/bin/bash", "-c", "exit 0")
_RUNS = 30
_ALLOWED_MS = 20


def sandbox(bench: Bench) -> list[Row]:
    """An empty command line of bash, confined and (in the column of the floor) bare."""
    found = bench.medians("sandbox", partial(_measure, _find_mechanisms()))
    return [ms(f"a command in {name}", found, name, Target(over=_ALLOWED_MS)) for name in found[OURS.name]]


def _find_mechanisms() -> Sequence[Mechanism]:
    program = find_bubblewrap()
    found = [Mechanism("bubblewrap", partial(wrap_by_bubblewrap, program), (), needs_places=True)] if program else []
    return [*found, *([Mechanism("Landlock", wrap_by_landlock, ())] if find_landlock() else [])]


def _measure(mechanisms: Sequence[Mechanism], candidate: Candidate) -> Measured:
    if candidate == OURS:
        return {mechanism.name: anyio.run(_time_confined, mechanism) for mechanism in mechanisms}
    return dict.fromkeys((mechanism.name for mechanism in mechanisms), _time_bare())


async def _time_confined(mechanism: Mechanism) -> float:
    """The seconds of the quickest command, with finding out what it is confined to."""
    with TemporaryDirectory(dir=Path.home()) as home:
        work, share = Path(home, "work"), Path(home, "share")
        for number in range(50):
            (work / f"d{number}").mkdir(parents=True)
        (work / ".git").mkdir()
        share.mkdir()

        async def load_scopes() -> PathScopes:
            return PathScopes((str(work),), protected=(str(share / "config.toml"),))

        confining = Sandbox(SandboxSettings(mode="workspace"), str(work), str(share), load_scopes, lambda: mechanism)
        times: list[float] = []
        for _ in range(_RUNS):
            began = time.perf_counter()
            confined = await confining.confine(_COMMAND, read_only=False)
            assert confined is not None
            _run(confined.argv, str(work))
            times.append(time.perf_counter() - began)
        confining.close()
        return min(times)  # what disturbs a run only ever makes it slower


def _time_bare() -> float:
    times: list[float] = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        _run(_COMMAND, "/")
        times.append(time.perf_counter() - began)
    return min(times)  # what disturbs a run only ever makes it slower


def _run(argv: Sequence[str], work_dir: str) -> None:
    subprocess.run(argv, cwd=work_dir, stdin=subprocess.DEVNULL, check=True)


CASES: dict[str, Case] = {"sandbox": sandbox}
