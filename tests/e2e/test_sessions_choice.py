"""Which session a start means, what is found again after which end, and what is left behind (runtime spec 4.5)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place, WireProcess, eventually, read_lines
from tests.support.providers.provider_server import Reply, error_reply, text_reply
from tests.support.providers.strict import sent, strict_provider, text_of
from tests.support.stored_sessions import last_session_id, register, sessions_dir, write_session

OTHER = "aaaaaaaa-0000-4000-8000-000000000000"
CONTEXT = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "answered"}]


def remembered(place: Place, session_id: str) -> None:
    """Another session, older, that is marked as the last one."""
    path = write_session(place, session_id, context=CONTEXT) / "context.jsonl"
    os.utime(path, (1_000_000_000, 1_000_000_000))
    register(place, session_id)


def continued(place: Place, *arguments: str) -> list[str]:
    """Resume and ask; gives the texts that the model was sent."""
    with strict_provider(text_reply("fine")) as server:
        place.provider(server.base_url)
        with place.wire(*(arguments or ("--continue",))) as kimi:
            assert kimi.prompt("and now?")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
        return [text_of(message) for message in sent(server)]


@pytest.mark.spec("R-56")
def test_an_id_creates_a_session_and_then_resumes_it(place: Place) -> None:
    for expected in (["and now?"], ["and now?", "fine", "and now?"]):
        assert continued(place, "--session", "my own: ünïcode"[:6] + "ünï") == expected
    assert [path.name for path in place.session_dirs()] == ["my ownünï"]
    assert continued(place, "--session", "x" * 128) == ["and now?"]


@pytest.mark.spec("R-56")
@pytest.mark.parametrize("wrong", ["a/b", "../../work", "a\\b", ".", "..", "x" * 129, "/etc/passwd"])
def test_unsafe_session_id_is_refused_and_changes_nothing(place: Place, wrong: str) -> None:
    place.script("text: hi")
    (place.work / "context.jsonl").write_text("not ours")
    done = place.run("--wire", "--session", wrong)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"A session id must not" in done.stderr
    assert not (place.share / "sessions").exists()
    assert (place.work / "context.jsonl").read_text() == "not ours"


@pytest.mark.spec("R-56", "R-59", "W-31")
@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGINT])
def test_unprompted_session_is_removed_and_foreign_files_are_kept(place: Place, end: signal.Signals | None) -> None:
    place.script("text: hi")
    foreign = sessions_dir(place) / "theirs" / "uploads"
    foreign.mkdir(parents=True)
    (foreign / "a.png").write_bytes(b"png")
    for arguments in ((), ("--session", "theirs"), ("--session", "new")):
        with place.wire(*arguments) as kimi:
            kimi.initialize()
            end_by(kimi, end)
    assert [path.name for path in sessions_dir(place).iterdir()] == ["theirs"]
    assert [path.name for path in foreign.parent.iterdir()] == ["uploads"]
    assert (foreign / "a.png").read_bytes() == b"png"
    assert last_session_id(place) is None


def end_by(kimi: WireProcess, end: signal.Signals | None) -> None:
    """End the process by a signal, or by the end of its input."""
    if end is None:
        assert kimi.finish() == 0
        return
    kimi.process.send_signal(end)
    assert kimi.wait() == (0 if end == signal.SIGINT else -end)


def test_cleared_session_is_kept_while_it_has_a_log(place: Place) -> None:
    place.script("text: hi")
    with place.wire() as kimi:
        assert kimi.prompt("/clear")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert len(place.session_dirs()) == 1
    assert continued(place) == ["and now?"]
    assert len(place.session_dirs()) == 1


@pytest.mark.spec("R-57")
@pytest.mark.parametrize("marked", [None, OTHER, "../../work", ""])
def test_continue_without_usable_mark_resumes_the_newest_session(place: Place, marked: str | None) -> None:
    for number, name in enumerate(["older", "newest", "empty"]):
        context = [{"role": "user", "content": name}, {"role": "assistant", "content": "ok"}]
        lines = [{"role": "_system_prompt", "content": "x"}] if name == "empty" else context
        path = write_session(place, name, context=lines) / "context.jsonl"
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    if marked is not None:
        register(place, marked)
    assert continued(place) == ["newest", "ok", "and now?"]
    assert last_session_id(place) == "newest"


def test_without_any_session_continue_is_a_usage_error(place: Place) -> None:
    place.script("text: hi")
    register(place, OTHER)
    done = place.run("--wire", "--continue")
    assert (done.returncode, done.stdout) == (2, b"")
    words = b" ".join(done.stderr.replace("│".encode(), b" ").split())
    assert b"Invalid value for --continue: No previous session found for the working directory" in words


@pytest.mark.spec("R-58", "W-30")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("busy", [True, False])
def test_killed_session_is_found_by_continue(place: Place, end: signal.Signals, busy: bool) -> None:
    remembered(place, OTHER)
    with strict_provider(Reply(fault="mute") if busy else text_reply("first")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize()
            kimi.call("prompt", {"user_input": "remember me"})
            assert eventually(lambda: bool(server.requests))
            if not busy:
                kimi.until("TurnEnd")
            kimi.process.send_signal(end)
            assert kimi.wait() == (0 if end == signal.SIGINT else -end)
    assert continued(place)[0].startswith("remember me")


@pytest.mark.spec("R-58")
@pytest.mark.parametrize(
    ("reply", "code"), [(error_reply(400, "no such model"), -32003), (Reply(fault="reset"), -32003)]
)
def test_session_whose_only_turn_failed_is_found_by_continue(place: Place, reply: Reply, code: int) -> None:
    remembered(place, OTHER)
    place.config = "[loop_control]\nmax_retries_per_step = 1\n"
    with strict_provider(reply) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            assert kimi.prompt("remember me")["error"]["code"] == code
            assert kimi.finish() == 0
    assert continued(place)[0].startswith("remember me")


@pytest.mark.spec("R-58")
def test_session_without_model_answer_is_found_by_continue(place: Place) -> None:
    remembered(place, OTHER)
    with place.wire() as kimi:
        assert kimi.prompt("no model yet")["error"]["code"] == -32001
        assert kimi.finish() == 0
    assert len(place.session_dirs()) == 2
    assert continued(place) == ["and now?"]


def test_session_with_only_a_command_is_found_by_continue(place: Place) -> None:
    remembered(place, OTHER)
    place.script("text: hi")
    with place.wire() as kimi:
        kimi.prompt("/yolo")
        assert kimi.finish() == 0
    assert continued(place) == ["and now?"]


def test_a_mark_for_another_work_dir_does_not_count(place: Place, tmp_path: Path) -> None:
    place.script("text: hi\n", "text: ho")
    other = tmp_path / "elsewhere"
    other.mkdir()
    with place.wire("--work-dir", str(other)) as kimi:
        kimi.prompt("there")
        kimi.finish()
    assert place.run("--wire", "--continue").returncode == 2
    context = sessions_dir(place, str(other)).glob("*/context.jsonl")
    assert [record["content"] for record in read_lines(next(context)) if record["role"] == "user"] == ["there"]
