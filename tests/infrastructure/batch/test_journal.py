"""The journal of a batch on a disk that says no, and over files that are not its own."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kimi.domain.batch import BatchRefused, BatchResult, BatchTask
from kimi.domain.errors import StoreFailed
from kimi.domain.turn import UsageTotal
from kimi.infrastructure.batch.journal import open_journal

pytestmark = pytest.mark.anyio


def task_named(name: str) -> BatchTask:
    return BatchTask(name, "text", "digest", work_dir="/")


def result_of(name: str, answer: str = "text") -> BatchResult:
    return BatchResult(name, "done", answer, None, UsageTotal(), 0.0, 1, None, "/", None, None, None)


@contextmanager
def files_limited_to(size: int) -> Generator[None, None, None]:
    """Let no file of this process grow beyond a size: a write gets as far as that, as on a disk that is full."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


async def test_nothing_is_appended_behind_a_line_that_is_not_whole(tmp_path: Path) -> None:
    """Space may be free again at once, because the workers end; what comes then must not spoil the journal."""
    results = tmp_path / "results.jsonl"
    with open_journal(str(results)) as journal:
        await journal.record_start(task_named("a"))
        grown = (tmp_path / "results.jsonl.journal").stat().st_size + 20
        with pytest.raises(StoreFailed), files_limited_to(grown):
            await journal.record_result(task_named("a"), result_of("a"))
        with pytest.raises(StoreFailed):
            await journal.record_end("a", "stopped", UsageTotal())
    with open_journal(str(results)) as journal:
        assert (journal.tasks["a"].starts, journal.tasks["a"].status) == (1, None)
        await journal.record_result(task_named("a"), result_of("a"))
    assert [json.loads(line)["id"] for line in results.read_bytes().splitlines()] == ["a"]


@pytest.mark.parametrize(
    "record",
    [
        {"type": "started", "id": "a"},
        {"type": "worktree", "id": "a", "worktree": {"path": 1}},
        {"type": "ended", "id": "a", "reason": "lost", "usage": {"tokens": "many"}},
        {"type": "finished", "id": "a", "digest": "d", "usage": None, "result": {}},
        {"type": "other"},
    ],
)
def test_a_record_of_something_else_is_named(tmp_path: Path, record: object) -> None:
    path = tmp_path / "results.jsonl.journal"
    path.write_text(f'{{"type": "batch", "version": 1}}\n{json.dumps(record)}\n')
    with (
        pytest.raises(BatchRefused, match="journal, line 2: this is no record"),
        open_journal(str(tmp_path / "results.jsonl")),
    ):
        pass
    assert sorted(os.listdir(tmp_path)) == ["results.jsonl.journal"]


@pytest.mark.parametrize("target", ["/dev/full", "/dev/null"])
def test_results_that_are_no_plain_file_are_refused(tmp_path: Path, target: str) -> None:
    """Reading them might never end, and what is written there is not kept."""
    results = tmp_path / "results.jsonl"
    results.symlink_to(target)
    with pytest.raises(BatchRefused, match="is no plain file"), open_journal(str(results)):
        pass
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BatchRefused, match="is no plain file"), open_journal(str(tmp_path / "pipe")):
        pass
    assert sorted(os.listdir(tmp_path)) == ["pipe", "results.jsonl"]
