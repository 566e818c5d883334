"""The ACP server as a process: start, streams, ends (acp spec 0, 4.8)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.program.acp_process import AcpProcess, acp_process, choose, text_prompt
from tests.support.program.pace import slowdown
from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Json, Place, alive, eventually
from tests.support.providers.scripts import shell

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and process groups of POSIX")

HANDSHAKE: Json = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: Hello", "text: again")


@pytest.mark.spec("A-01")
def test_the_handshake_is_answered_within_a_second_of_the_start(place: Place) -> None:
    starts: list[float] = []
    answers: list[float] = []
    for _ in range(4):  # the best of them counts: other tests may be running
        started = time.monotonic()
        with acp_process(place, cold=True) as kimi:
            kimi.shake_hands()
            starts.append(time.monotonic() - started)
            started = time.monotonic()
            kimi.shake_hands()
            answers.append(time.monotonic() - started)
        if starts[-1] < 1.0 and answers[-1] < 0.05:
            break
    slower = slowdown()
    assert min(starts) < 1.0 * slower
    assert min(answers) < 0.05 * slower


@pytest.mark.spec("A-16", "R-23")
def test_legacy_acp_option_starts_the_same_server(place: Place) -> None:
    with acp_process(place, command=("--acp",)) as kimi:
        kimi.shake_hands()
        session_id = kimi.new_session(place)
        assert kimi.say(session_id, "hi")["result"]["stopReason"] == "end_turn"
        assert kimi.said == "Hello"
        assert kimi.finish() == 0
        assert kimi.stderr == b"'--acp' is deprecated; use 'kimi acp'.\n"


@pytest.mark.spec("A-10")
def test_the_end_of_the_input_ends_an_idle_server(place: Place) -> None:
    for with_session in (False, True):
        took: list[float] = []
        while len(took) < 3 and (not took or min(took) >= 1):  # a busy machine is no failure
            took.append(idle_end(place, with_session=with_session))
        assert min(took) < slowdown(), took


def idle_end(place: Place, *, with_session: bool) -> float:
    """Seconds from the end of the input to the end of a process that has nothing to do."""
    with acp_process(place, cold=True) as kimi:
        kimi.shake_hands()
        if with_session:
            kimi.new_session(place)
            time.sleep(0.7)  # the imports are done
        started = time.monotonic()
        assert kimi.finish() == 0
        assert kimi.stderr == b""
        return time.monotonic() - started


def test_empty_input_ends_the_server(place: Place) -> None:
    done = place.run("acp")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with open(os.devnull, "rb") as nothing:
        command = [*kimi_command(), "acp"]
        finished = subprocess.run(
            command, stdin=nothing, capture_output=True, env=place.full_environ(), timeout=10, check=False
        )
    assert (finished.returncode, finished.stdout) == (0, b"")


def running_command(place: Place, kimi: AcpProcess) -> int:
    """Start a turn that runs a long command; gives the id of its process."""
    kimi.shake_hands()
    session_id = kimi.new_session(place)
    kimi.request("session/prompt", text_prompt(session_id, "hi"))
    asked = kimi.until_method("session/request_permission")
    kimi.send({"jsonrpc": "2.0", "id": asked["id"], **(choose("approve")(asked) or {})})
    pid_file = place.work / "pid"
    assert eventually(lambda: pid_file.exists() and bool(pid_file.read_text(encoding="utf-8").strip()))
    return int(pid_file.read_text(encoding="utf-8"))


@pytest.mark.spec("A-11", "A-14", "R-13")
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_shutdown_leaves_no_process(place: Place, number: signal.Signals | None) -> None:
    place.script(shell("c1", "sleep 60 & echo $! > pid; wait"))
    with acp_process(place) as kimi:
        pid = running_command(place, kimi)
        started = time.monotonic()
        if number is None:
            kimi.end_input()
        else:
            kimi.process.send_signal(number)
        rest = kimi.rest()
        assert kimi.wait() == 0
        assert time.monotonic() - started < 5.0
        assert not alive(pid)
        answers = [line for line in rest if "method" not in line]
        assert [answer["result"]["stopReason"] for answer in answers] == ["cancelled"]


@pytest.mark.spec("A-14")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_an_idle_server(place: Place, number: signal.Signals) -> None:
    with acp_process(place) as kimi:
        kimi.shake_hands()
        kimi.new_session(place)
        kimi.process.send_signal(number)
        kimi.rest()
        assert kimi.wait() == 0
        assert kimi.stderr == b""


# --- a client that does not read --------------------------------------------------------------------------------


@contextmanager
def raw_server(place: Place, *, stdout: int | None = None) -> Generator[subprocess.Popen[bytes], None, None]:
    """`kimi acp` with pipes that nobody reads by itself; its stderr is never read."""
    with subprocess.Popen(
        [*kimi_command(), "acp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        cwd=place.work,
        env=place.full_environ(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def send(process: subprocess.Popen[bytes], *messages: Json) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def read_answer(process: subprocess.Popen[bytes], call_id: int) -> Json:
    assert process.stdout is not None
    for raw in process.stdout:
        line: Json = json.loads(raw)
        if "method" not in line and line["id"] == call_id:
            return line
    raise AssertionError("the output has ended")


def opened(process: subprocess.Popen[bytes], place: Place) -> str:
    """Shake hands and open a session; gives its id."""
    new: Json = {"id": 1, "method": "session/new", "params": {"cwd": str(place.work)}}
    send(process, HANDSHAKE, new)
    return read_answer(process, 1)["result"]["sessionId"]


@pytest.mark.spec("A-12")
def test_client_closing_stdout_ends_the_server(place: Place) -> None:
    place.script(shell("c1", "sleep 60 & echo $! > pid; wait"))
    with raw_server(place) as process:
        session_id = opened(process, place)
        mode: Json = {"sessionId": session_id, "modeId": "yolo"}
        send(process, {"id": 2, "method": "session/set_mode", "params": mode})
        send(process, {"id": 3, "method": "session/prompt", "params": text_prompt(session_id, "hi")})
        pid_file = place.work / "pid"
        assert eventually(lambda: pid_file.exists() and bool(pid_file.read_text(encoding="utf-8").strip()))
        assert process.stdout is not None
        started = time.monotonic()
        process.stdout.close()
        assert process.wait(10) == 0
        assert time.monotonic() - started < 5.0
        assert not alive(int(pid_file.read_text(encoding="utf-8")))


@pytest.mark.spec("A-13")
def test_client_that_stops_reading_does_not_block_shutdown(place: Place) -> None:
    place.script("text: " + "flood " * 500_000)
    with raw_server(place) as process:
        session_id = opened(process, place)
        send(process, {"id": 2, "method": "session/prompt", "params": text_prompt(session_id, "hi")})
        time.sleep(1.0)
        started = time.monotonic()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        assert time.monotonic() - started < 5.0


@pytest.mark.spec("A-15")
def test_files_serve_as_input_and_output(place: Place, tmp_path: Path) -> None:
    requests: list[Json] = [
        HANDSHAKE,
        {"id": 1, "method": "session/new", "params": {"cwd": str(place.work)}},
        {"id": 2, "method": "session/list"},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests)
    (tmp_path / "in").write_text(text, encoding="utf-8")
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        command = [*kimi_command(), "acp"]
        done = subprocess.run(command, stdin=stdin, stdout=stdout, env=place.full_environ(), timeout=10, check=False)
    assert done.returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
    answers = {line["id"]: line for line in lines if "method" not in line}
    assert all("result" in answers[number] for number in (0, 1, 2))


STRAY = """
import os, threading, time

def write():
    while not os.path.exists(os.environ["STRAY_GO"]):
        time.sleep(0.05)
    print("stray text", flush=True)
    os.write(1, b"x" * 100_000)
    os.write(2, b"x" * 1_000_000)

threading.Thread(target=write, daemon=True).start()
"""


@pytest.mark.spec("A-02", "A-20", "R-14", "R-90")
def test_stray_output_neither_blocks_nor_disturbs(place: Place, tmp_path: Path) -> None:
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / "sitecustomize.py").write_text(STRAY, encoding="utf-8")
    place.environ |= {"PYTHONPATH": str(tmp_path / "stray"), "STRAY_GO": str(tmp_path / "go")}
    place.environ["KIMI_SCRIPTED_ECHO_TRACE"] = "1"
    log = place.share / "logs" / "kimi.log"
    with raw_server(place) as process:
        session_id = opened(process, place)
        (tmp_path / "go").touch()
        assert eventually(lambda: log.read_bytes().count(b"x") >= 1_100_000)
        send(process, {"id": 2, "method": "session/prompt", "params": text_prompt(session_id, "hi")})
        assert read_answer(process, 2)["result"]["stopReason"] == "end_turn"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert b"stray text" in log.read_bytes()
    assert b'SCRIPTED_ECHO TURN 1: "text: Hello"' in log.read_bytes()


# --- size -------------------------------------------------------------------------------------------------------


def resident(process: AcpProcess) -> int:
    """Bytes of memory."""
    status = Path(f"/proc/{process.process.pid}/statm").read_text(encoding="utf-8")
    return int(status.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.spec("A-05")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_prompt_of_sixty_megabytes_is_accepted(tmp_path: Path) -> None:
    place = Place(tmp_path, context_size=100_000_000).script("text: Hello", "text: again")
    with acp_process(place) as kimi:
        kimi.shake_hands()
        session_id = kimi.new_session(place)
        assert kimi.say(session_id, "hi")["result"]["stopReason"] == "end_turn"
        before = resident(kimi)
        answer = kimi.say(session_id, "long " * (12 * 1024 * 1024))
        assert answer["result"]["stopReason"] == "end_turn"
        kimi.result("session/close", {"sessionId": session_id})
        assert eventually(lambda: resident(kimi) < before + 30 * 1024 * 1024)


# --- setting up -------------------------------------------------------------------------------------------------


@pytest.mark.spec("A-32")
@pytest.mark.parametrize("command", [("acp", "--setup"), ("--acp", "--setup")])
def test_the_setup_runs_in_the_terminal_of_the_client(tmp_path: Path, command: tuple[str, ...]) -> None:
    place = Place(tmp_path)
    deprecation = b"'--acp' is deprecated; use 'kimi acp'.\n" if "--acp" in command else b""
    given_up, wanted = place.run(*command, stdin=b""), place.run("setup", stdin=b"")
    assert (given_up.returncode, given_up.stdout) == (wanted.returncode, wanted.stdout)
    assert given_up.returncode == 1
    assert given_up.stderr == deprecation + wanted.stderr
    number = next(line.split()[0].strip(".)") for line in given_up.stdout.decode().splitlines() if "Anthropic" in line)
    answers = "\n".join([number, "", "sk-typed", "claude-x", "200k", "thinking"])
    done = place.run(*command, stdin=answers.encode())
    assert (done.returncode, done.stderr) == (0, deprecation)
    assert 'default_model = "claude-x"' in (place.share / "config.toml").read_text(encoding="utf-8")


def test_the_end_of_a_session_is_not_that_of_the_process(place: Place) -> None:
    place.config = f'[[hooks]]\nevent = "SessionEnd"\ncommand = "echo done > {place.work}/ended"\n'
    place.script("text: Hello", "text: again")
    with acp_process(place) as kimi:
        kimi.shake_hands()
        first, second = kimi.new_session(place), kimi.new_session(place)
        kimi.say(first, "hi")
        kimi.result("session/close", {"sessionId": first})
        assert (place.work / "ended").exists()
        time.sleep(4.8)  # longer than the end of a process may take
        assert kimi.say(second, "hi")["result"]["stopReason"] == "end_turn"
        assert kimi.finish() == 0
