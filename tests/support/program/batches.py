"""Task files for `kimi batch`, real runs of it, and readers of what they leave."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.program.processes import comes_true
from tests.support.program.program import Program, finished, start
from tests.support.program.wire_process import Json, Place


@dataclass(frozen=True)
class Batch:
    """A task file below a place, and what `kimi batch` makes of it."""

    place: Place
    path: Path
    is_cold: bool = False
    """Whether the program is started as a user does, and not forked from a process that has imported it."""

    @property
    def results_path(self) -> Path:
        """The results."""
        return self.path.with_suffix(".results.jsonl")

    @property
    def journal_path(self) -> Path:
        """The journal beside them."""
        return self.path.with_suffix(".results.jsonl.journal")

    def run(self, *options: str, timeout: float = 50, before: Sequence[str] = ()) -> tuple[int, str]:
        """Run `kimi batch` to its end; return its status and what it wrote to stderr. `before` are options of kimi."""
        done = finished(self.start(*options, before=before), timeout=timeout)
        assert done.stdout == b""
        return done.returncode, done.stderr.decode()

    def start(self, *options: str, before: Sequence[str] = ()) -> Program:
        """Start `kimi batch`."""
        return start(
            (*before, "batch", str(self.path), *options), self.place.work, self.place.full_environ(), cold=self.is_cold
        )

    @contextmanager
    def started(self, *options: str) -> Generator[Program, None, None]:
        """Start `kimi batch`; on leaving it is killed."""
        program = self.start(*options)
        try:
            yield program
        finally:
            program.kill()
            program.wait()
            for stream in (program.stdin, program.stdout, program.stderr):
                assert stream is not None
                stream.close()

    def results(self) -> list[Json]:
        """Return the results in their order; every line must be whole."""
        if not self.results_path.exists():
            return []
        return [json.loads(line) for line in self.results_path.read_bytes().splitlines()]

    def answers(self) -> dict[str, str]:
        """Return the answers by task; none may have two results."""
        found = [(result["id"], result["answer"]) for result in self.results()]
        assert len(dict(found)) == len(found)
        return dict(found)

    def records(self, kind: str) -> list[Json]:
        """Return the records of one kind in the journal."""
        lines = [json.loads(line) for line in self.journal_path.read_bytes().splitlines()]
        return [line for line in lines if line["type"] == kind]

    def wait_for_results(self, count: int) -> None:
        """Wait until so many results were written."""
        assert comes_true(lambda: self.count_results() >= count, 30)

    def count_results(self) -> int:
        """Return how many whole lines the results have."""
        return self.results_path.read_bytes().count(b"\n") if self.results_path.exists() else 0

    def wait_for_start(self, count: int = 1) -> None:
        """Wait until so many attempts were started."""

        def has_started() -> bool:
            return self.journal_path.exists() and self.journal_path.read_bytes().count(b'"started"') >= count

        assert comes_true(has_started, 30)


def batch_of(place: Place, *tasks: Json) -> Batch:
    """Write a task file. A task without a place gets a directory of its own, named after it."""
    place.write_config("_echo")
    path = place.root / "tasks.jsonl"
    for task in tasks:
        if "work_dir" not in task and "worktree" not in task:
            task["work_dir"] = f"work/{task['id']}"
            (place.root / task["work_dir"]).mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks), encoding="utf-8")
    return Batch(place, path)


def task(task_id: str, prompt: str = "", **more: Any) -> Json:
    """Return the line of a task for the model that plays its prompt."""
    return {"id": task_id, "prompt": prompt or f"text: answer of {task_id}", **more}


def slow_tasks(count: int, delay_ms: int) -> list[Json]:
    """Return tasks whose model takes so long."""
    return [task(f"t{number}", f"delay_ms: {delay_ms}\ntext: answer {number}") for number in range(count)]
