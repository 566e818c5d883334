"""The task file of a batch: what a line may hold, and what is said of one that cannot be used (runtime spec 10.1)."""

from __future__ import annotations

import json

import pytest

from kimi.application.batch.ports import AttemptOrder
from kimi.application.batch.records import ORDERS, shape_result
from kimi.application.batch.task_file import TaskDefaults, parse_tasks
from kimi.application.codec.envelope import encode_json
from kimi.application.settings.flags import Flags
from kimi.domain.batch import BatchRefused, BatchResult, BatchTask, WorktreeSource
from kimi.domain.turn import UsageTotal

FIRST = '{"id": "first", "prompt": "x", "work_dir": "."}'


def parse(*lines: str, defaults: TaskDefaults | None = None) -> list[BatchTask]:
    return parse_tasks([line.encode() for line in lines], "/batches/tasks.jsonl", defaults or TaskDefaults())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "a", "promt": "x", "work_dir": "."}', ["line 3", "unknown key 'promt'", "prompt, work_dir"]),
        ('{"id": "a", "work_dir": "."}', ["line 3", "the key 'prompt' is missing"]),
        ('{"id": "a/b", "prompt": "x", "work_dir": "."}', ["line 3", "an id has 1 to 64 letters"]),
        ('{"id": "FIRST", "prompt": "x", "work_dir": "."}', ["line 3", "that of line 1"]),
        ('{"id": "a", "prompt": "x"}', ["line 3", "either work_dir or worktree"]),
        ('{"id": "a", "prompt": "x", "worktree": {"repo": "."}}', ["line 3", "worktree.repo", "repository, ref"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "env": {"KEY": ["sk-secret"]}}', ["line 3", "env.KEY"]),
        ('["a"]', ["line 3: this is not a JSON object."]),
        ("{", ["line 3", "not a JSON object"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "metadata": NaN}', ["line 3", "not a JSON object"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "metadata": "\\ud800"}', ["line 3", "not a JSON object"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "metadata": ' + "[" * 300, ["line 3", "recursion limit"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "timeout": true}', ["line 3", "timeout"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "timeout": "5"}', ["line 3", "timeout"]),
        ('{"id": "a", "prompt": "x", "work_dir": "a\\u0000b"}', ["line 3", "work_dir", "NUL"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "agent": "a\\u0000b"}', ["line 3", "agent", "NUL"]),
        ('{"id": "a", "prompt": "x", "worktree": {"repository": ".", "ref": "\\u0000"}}', ["line 3", "ref", "NUL"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "env": {"KEY=sk-secret": ""}}', ["line 3", "env"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "env": {"KEY": "sk-secret\\u0000"}}', ["line 3", "env", "NUL"]),
        ('{"id": "a", "prompt": "x", "work_dir": ".", "env": {"": "sk-secret"}}', ["line 3", "env"]),
    ],
)
def test_a_wrong_line_is_told_with_its_number_and_fault(line: str, words: list[str]) -> None:
    with pytest.raises(BatchRefused) as refused:
        parse(FIRST, "", line)
    assert all(word in str(refused.value) for word in words), refused.value
    assert "sk-secret" not in str(refused.value)


def test_three_faults_are_told_and_the_others_counted() -> None:
    with pytest.raises(BatchRefused) as refused:
        parse(*["{"] * 5)
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        *(f"/batches/tasks.jsonl, line {number}" for number in (1, 2, 3)),
        "2 more lines cannot be used.",
    ]


def test_a_file_without_a_task_is_refused() -> None:
    with pytest.raises(BatchRefused, match="holds no task"):
        parse("", "  ")


def test_a_file_may_come_from_another_editor() -> None:
    """With a byte-order mark, and with the line ends of Windows."""
    assert [one.id for one in parse(f"\ufeff{FIRST}\r\n", "\r\n", FIRST.replace("first", "b") + "\r\n")] == [
        "first",
        "b",
    ]


def test_metadata_comes_as_deep_as_a_result_can_hold_it() -> None:
    deep = "[" * 150 + "1" + "]" * 150
    (task,) = parse(f'{{"id": "a", "prompt": "x", "work_dir": ".", "metadata": {deep}}}')
    result = BatchResult("a", "done", None, None, UsageTotal(), 0.0, 1, None, None, None, None, task.metadata)
    assert json.loads(encode_json({"result": shape_result(result)}))["result"]["metadata"] == json.loads(deep)
    assert b"[[[" in encode_json(
        {"order": ORDERS.dump_python(AttemptOrder(task, "/", Flags(work_dir="/")), mode="json")}
    )


def test_paths_begin_where_the_file_is() -> None:
    source = {"repository": "../shop", "ref": "v1", "branch": "b"}
    one, two = parse(
        json.dumps({"id": "a", "prompt": "x", "work_dir": "a/./b", "agent": "agents/x.yaml"}),
        json.dumps({"id": "b", "prompt": "x", "worktree": source, "agent": "okabe"}),
    )
    assert (one.work_dir, one.agent) == ("/batches/a/b", "/batches/agents/x.yaml")
    assert (two.worktree, two.agent) == (WorktreeSource("/shop", "v1", "b"), "okabe")


def test_defaults_hold_where_a_task_says_nothing() -> None:
    lines = [FIRST, '{"id": "b", "prompt": "x", "work_dir": ".", "timeout": 5, "max_tokens": 6, "retries": 0}']
    defaults = TaskDefaults(timeout_s=1, max_tokens=2, retries=3)
    found = [(one.timeout_s, one.max_tokens, one.retries) for one in parse(*lines, defaults=defaults)]
    assert found == [(1, 2, 3), (5, 6, 0)]


def test_the_digest_tells_whether_a_line_asks_for_something_else() -> None:
    same = '{"work_dir": ".", "prompt":"x", "id": "first"}'
    other = FIRST.replace('"x"', '"y"')
    one, two, three = (parse(line)[0].digest for line in (FIRST, same, other))
    assert one == two != three
