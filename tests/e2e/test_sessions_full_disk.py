"""The disk says no in the middle of a turn: one clear sentence, nothing lost, and it goes on when there is room again.

A limit for the size of files stands in for a full disk; it is set and lifted from outside, also while a turn runs.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place, WireProcess, eventually
from tests.support.providers.provider_server import call_reply, text_reply
from tests.support.providers.strict import sent, strict_provider, text_of

SENTENCE = "; raise the limit for the size of files, or start a new session."


@contextmanager
def full(kimi: WireProcess, limit: int) -> Generator[None, None, None]:
    """No file of the process grows beyond `limit` bytes."""
    _, hard = resource.prlimit(kimi.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(kimi.process.pid, resource.RLIMIT_FSIZE, (limit, hard))
    yield
    with suppress(ProcessLookupError):
        resource.prlimit(kimi.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def size(place: Place, name: str) -> int:
    """The size of a file of the only session."""
    return (place.session_dirs()[-1] / name).stat().st_size


def lines_are_whole(path: Path) -> bool:
    """Does every line hold JSON, the last one too?"""
    content = path.read_text(encoding="utf-8")
    return content.endswith("\n") and all(json.loads(line) for line in content.splitlines())


def test_an_input_that_does_not_fit_is_refused_and_a_smaller_one_is_taken(place: Place) -> None:
    with strict_provider(text_reply("one"), text_reply("two")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.prompt("first")
            with full(kimi, size(place, "context.jsonl") + 5_000):
                error = kimi.prompt("x" * 10_000)["error"]
                assert error["code"] == -32603
                assert error["message"].endswith(SENTENCE)
                assert str(place.session_dirs()[-1]) in error["message"]
            assert kimi.prompt("second")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
        assert [text_of(message) for message in sent(server)] == ["first", "one", "second"]
    assert len(server.requests) == 2
    assert all(lines_are_whole(path) for path in place.session_dirs()[-1].glob("*.jsonl"))


@pytest.mark.parametrize("room", [0, 60, 250, 2_000])
def test_disk_filling_up_during_commands_loses_no_results(place: Place, room: int) -> None:
    command = "touch started; while [ ! -e go ]; do sleep 0.01; done; seq 1000 2000"
    calls = [("c1", "Shell", json.dumps({"command": command})), ("c2", "Shell", '{"command":"true"}')]
    with strict_provider(call_reply(*calls, text="look"), text_reply("went on"), text_reply("again")) as server:
        place.provider(server.base_url)
        with place.wire("--yolo") as kimi:
            call_id = kimi.call("prompt", {"user_input": "begin"})
            assert eventually((place.work / "started").exists)
            with full(kimi, max(size(place, "context.jsonl"), size(place, "wire.jsonl")) + room):
                (place.work / "go").touch()
                error = kimi.response(call_id)["error"]
                assert error["message"].endswith(SENTENCE)
            assert kimi.prompt("and now?")["result"] == {"status": "finished"}
            seen = {payload["tool_call_id"]: payload["return_value"] for payload in kimi.payloads("ToolResult")}
            messages = sent(server)
            assert kimi.finish() == 0
        with place.wire("--continue") as kimi:
            assert kimi.prompt("and then?")["result"] == {"status": "finished"}
        assert sent(server)[: len(messages)] == messages
    answers = {message["tool_call_id"]: text_of(message) for message in messages if message["role"] == "tool"}
    assert list(answers) == ["c1", "c2"]
    for call, result in seen.items():
        assert result["output"] in answers[call]
    assert all(lines_are_whole(path) for path in place.session_dirs()[-1].glob("*.jsonl"))


def test_a_disk_that_is_full_from_the_start_is_reported_and_the_process_ends_well(place: Place) -> None:
    place.script("text: hi", "text: ho")
    with place.wire() as kimi:
        kimi.initialize()
        with full(kimi, 0):
            error = kimi.prompt("hello")["error"]
            assert error["message"].endswith(SENTENCE)
            assert kimi.finish() == 0
    assert kimi.stderr == b""
    assert place.session_dirs() == []


def test_a_share_directory_that_cannot_be_written_is_named(place: Place) -> None:
    place.script("text: hi", "text: ho")
    (place.share / "sessions").write_text("in the way")
    done = place.run("--wire")
    assert (done.returncode, done.stdout) == (1, b"")
    first = done.stderr.decode().splitlines()[0]
    assert str(place.share / "sessions") in first
    assert first.endswith("; move the file away that stands where a directory must be.")


def test_an_approval_for_the_session_that_cannot_be_stored_still_lets_the_call_run(place: Place) -> None:
    call = 'tool_call: {"id":"c1","name":"Shell","arguments":"{\\"command\\":\\"echo hi\\"}"}'
    place.script(call, "text: done", call, "text: again")
    with place.wire() as kimi:
        call_id = kimi.call("prompt", {"user_input": "go"})
        request = kimi.until("ApprovalRequest")
        (place.session_dirs()[0] / "state.json.new").mkdir()
        kimi.send(
            {
                "jsonrpc": "2.0",
                "id": request["id"],
                "result": {"request_id": request["id"], "response": "approve_for_session"},
            }
        )
        assert kimi.response(call_id)["result"] == {"status": "finished"}
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert len(kimi.payloads("ApprovalRequest")) == 1
        assert kimi.finish() == 0
