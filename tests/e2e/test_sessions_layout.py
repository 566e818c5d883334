"""What a run leaves on disk, read the way other programs read it (runtime spec 4.1 to 4.3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place, approve
from tests.support.stored_sessions import events_of, listed, mode, roles, sessions_dir

PLAIN = ["_checkpoint", "user", "_checkpoint", "assistant"]
LOGGED = ["TurnBegin", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]


def answer_once(place: Place, *arguments: str) -> None:
    """One plain turn."""
    with place.wire(*arguments) as kimi:
        kimi.initialize()
        assert kimi.prompt("hello there")["result"] == {"status": "finished"}
        assert kimi.finish() == 0


@pytest.mark.spec("R-52", "R-53", "W-126")
def test_a_plain_turn_leaves_the_records_that_upstream_counts(place: Place) -> None:
    place.script("text: a\ntext: b")
    answer_once(place)
    header, *log = place.recorded()
    assert roles(place.context()) == ["_system_prompt", *PLAIN]
    assert header == {"type": "metadata", "protocol_version": "1.10"}
    assert events_of(log) == LOGGED
    assert log[2]["message"]["payload"] == {"type": "text", "text": "ab"}
    answer_once(place, "--continue")
    assert len(place.session_dirs()) == 1
    assert [record["id"] for record in place.context() if record["role"] == "_checkpoint"] == [0, 1, 2, 3]
    assert roles(place.context()) == ["_system_prompt", *PLAIN, *PLAIN]
    assert events_of(place.recorded()) == [*LOGGED, *LOGGED]
    assert place.recorded().count(header) == 1


@pytest.mark.spec("R-51")
@pytest.mark.parametrize("spelling", ["{link}", "{link}/", "{link}/../{name}/.", "./{name}"])
def test_sdks_find_the_sessions_of_the_path_that_was_given(place: Place, spelling: str) -> None:
    link = place.root / "link"
    link.symlink_to(place.work)
    place.script("text: hi")
    given = spelling.format(link=link, name=link.name)
    with place.wire("--work-dir", os.path.join("..", given) if given.startswith(".") else given) as kimi:
        kimi.prompt("hello there")
        assert kimi.finish() == 0
    assert [session.brief for session in listed(place, str(link))] == ["hello there"]
    assert not sessions_dir(place).exists()


def test_written_files_are_private_to_the_owner(place: Place) -> None:
    place.script('tool_call: {"id":"c1","name":"Shell","arguments":"{\\"command\\":\\"seq 1 200000\\"}"}', "text: done")
    old_mask = os.umask(0)
    try:
        with place.wire("--yolo") as kimi:
            assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
            assert kimi.prompt("/clear")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    finally:
        os.umask(old_mask)
    ours = [path for path in place.share.rglob("*") if path.name != "config.toml"]
    assert {"context.jsonl", "context_1.jsonl", "wire.jsonl", "state.json", "kimi.json"} <= {p.name for p in ours}
    assert {mode(path) for path in ours if path.is_dir()} == {0o700}
    assert {mode(path) for path in ours if path.is_file()} == {0o600}


def test_missing_share_directory_is_created_private(place: Place, tmp_path: Path) -> None:
    place.script("text: hi")
    share = tmp_path / "not" / "there"
    place.environ = {"KIMI_SHARE_DIR": str(share)}
    with place.wire("--config-file", str(place.share / "config.toml")) as kimi:
        assert kimi.prompt("hello")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert mode(share) == 0o700
    assert {path.name for path in share.iterdir()} == {"kimi.json", "logs", "sessions"}
    assert not (place.home / ".kimi").exists()
