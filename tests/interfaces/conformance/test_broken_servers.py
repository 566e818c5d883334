"""`kimi conformance` and small servers that hang, flood, fall over or leave processes behind: told, and in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import anyio
import pytest

from kimi.interfaces.conformance.connection import kill_leftovers, run_with_files, stdio_server
from kimi.interfaces.conformance.ledger import Ledger, Mismatch
from kimi.interfaces.conformance.peer import MAX_RECEIVED_BYTES, Peer
from tests.support.program.processes import comes_true
from tests.support.program.wire_process import Place

BASE = """
import json, os, subprocess, sys, time
RESULT = {"protocol_version": "1.10", "server": {"name": "small", "version": "0"}, "slash_commands": []}
IDLE = {"code": -32000, "message": "No agent turn is in progress", "data": None}
def send(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)
def answer(message):
    if "id" in message:
        known = message.get("method") == "initialize"
        send(id=message["id"], **({"result": RESULT} if known else {"error": IDLE}))
def messages():
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            yield message
"""


TALKATIVE = """
for m in messages():
    if m.get("method") == "nope":
        text = "Unexpected method received: nope"
        send(id=m.get("id"), error={"code": -32601, "message": text, "data": None})
    else:
        answer(m)
"""


def judge(root: Path, program: str, *options: str) -> CompletedProcess[bytes]:
    """Run the command against a small server."""
    place = Place(root)
    path = place.work / "small.py"
    path.write_text(BASE + program, encoding="utf-8")
    return place.run("conformance", "--timeout", "1", *options, "--", sys.executable, str(path), timeout=60)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("time.sleep(60)", "nothing arrived within 1 s"),
        ("sys.exit('no model is \\x1b[31mconfigured')", "stderr: no model is \\u001b[31mconfigured"),
        ("RESULT['protocol_version'] = '2.3'\nfor m in messages(): answer(m)", "its protocol_version is '2.3'"),
        ("for m in messages(): send(id=m['id'], error=IDLE)", "it names no protocol_version, but says"),
    ],
    ids=["hangs", "exits", "another protocol", "refuses"],
)
def test_a_failed_first_handshake_says_why(tmp_path: Path, program: str, sentence: str) -> None:
    done = judge(tmp_path, program)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("The first handshake failed: ")
    assert sentence in done.stderr.decode()


@pytest.mark.parametrize(
    ("program", "item", "reason"),
    [
        ("for m in messages(): answer(m); answer(m)", "W-24", "no open request has it"),
        ("for m in messages(): print('got one'); answer(m)", "W-01", "a line is not one JSON object"),
        ("for m in messages(): send(method='event', params={'type': 'TurnBegin'}); answer(m)", "W-89", "no event"),
        ("for m in messages(): send(method=['x'], params=[1]); answer(m)", "W-89", "no event or request"),
        (TALKATIVE, "W-14", "a notification was answered"),
    ],
    ids=["answers twice", "prints", "event without payload", "odd method", "answers notifications"],
)
def test_what_a_small_server_does_wrong_is_named(tmp_path: Path, program: str, item: str, reason: str) -> None:
    done = judge(tmp_path, program, "--only", f"W-11,{item}")
    assert done.returncode == 1, done.stderr.decode()
    text = done.stdout.decode()
    assert f"{item} FAILED" in text
    assert reason in text
    assert "Traceback" not in done.stderr.decode()


def test_a_server_without_records_does_not_pass_for_their_timestamps(tmp_path: Path) -> None:
    done = judge(tmp_path, "for m in messages(): answer(m)", "--only", "W-132")
    assert "W-132 FAILED" in done.stdout.decode()


def test_an_older_server_is_held_to_its_own_version(tmp_path: Path) -> None:
    program = "RESULT['protocol_version'] = '1.1'\nfor m in messages(): answer(m)"
    done = judge(tmp_path, program, "--only", "W-38,W-43,W-100,W-113", "--verbose")
    text = done.stdout.decode()
    assert "W-38 passed" in text
    assert text.endswith("1 passed, 3 lacking in what the server speaks\n")
    assert "hooks of the client" not in done.stderr.decode()


def test_reports_hold_whatever_a_server_writes(tmp_path: Path) -> None:
    program = r"""
RESULT["server"]["name"] = "evil\x1b]0;x\x07\ud800\uffff"
for m in messages():
    os.write(1, b"\x00\x1b[31m\xff" + b"y" * 100_000 + b"\n")
    answer(m)
"""
    options = ["--only", "W-01,W-05", "--junit", "report.xml", "--json", "report.json"]
    done = judge(tmp_path, program, *options)
    assert done.returncode == 1, done.stderr.decode()
    assert b"\x1b" not in done.stdout
    assert len(done.stdout) < 100_000
    work = Place(tmp_path).work
    assert ElementTree.parse(work / "report.xml").getroot().get("failures") == "2"
    assert json.loads((work / "report.json").read_text(encoding="utf-8"))["server"].startswith("evil\\u001b]0;x")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes of other groups cannot be found")
def test_nothing_that_a_server_has_started_outlives_the_run(tmp_path: Path) -> None:
    program = """
for m in messages():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    with open(PIDS, "a") as file:
        file.write(f"{child.pid} ")
    answer(m)
"""
    pids = tmp_path / "pids"
    done = judge(tmp_path, program.replace("PIDS", repr(str(pids))), "--only", "W-12")
    assert done.returncode in (0, 1), done.stderr.decode()
    started = [int(one) for one in pids.read_text().split()]
    assert started
    assert not [pid for pid in started if is_running(pid)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes of other groups cannot be found")
def test_leftovers_have_ended_when_they_are_said_to(tmp_path: Path) -> None:
    """A process that is killed needs a processor once more, and the others have them all."""
    begun = [tmp_path / str(number) for number in range(12)]
    program = "import sys; open(sys.argv[1], 'w').close()\nwhile True: pass"
    started = [subprocess.Popen([sys.executable, "-c", program, path], cwd=tmp_path) for path in begun]
    try:
        assert comes_true(lambda: all(path.exists() for path in begun), 20)
        asyncio.run(kill_leftovers(tmp_path))
        assert not [one.pid for one in started if is_running(one.pid)]
    finally:
        for one in started:
            one.kill()
            one.wait()


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_that_sends_without_end_is_read_to_a_limit(tmp_path: Path) -> None:
    async def act() -> tuple[Peer, str]:
        code = "import sys\nwhile True: sys.stdout.write('{\"a\": \"' + 'x' * 1_000_000 + '\"}\\n')"
        command = [sys.executable, "-c", code]
        peer = Peer(await stdio_server(command)((tmp_path, dict(os.environ)), ()), 30)
        try:
            with pytest.raises(Mismatch) as told:
                await peer.response("none")
        finally:
            await peer.close()
        return peer, str(told.value)

    peer, reason = anyio.run(act)
    assert "the server sends without end: " in reason
    assert sum(map(len, peer.raw)) < MAX_RECEIVED_BYTES + 2_000_000


def test_a_server_over_files_that_does_not_end_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def act() -> None:
        code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(100)"
        run = run_with_files([sys.executable, "-c", code])
        task = asyncio.ensure_future(run((tmp_path, dict(os.environ)), b""))
        with anyio.fail_after(20):
            while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    anyio.run(act)
    assert not is_running(int(pid.read_text()))


@pytest.mark.parametrize("error", [TimeoutError("late"), FileNotFoundError("no log"), KeyError("id")])
def test_a_check_that_something_breaks_off_fails(error: Exception) -> None:
    ledger = Ledger("scenario", ["W-01"])
    with ledger.check("W-01"):
        raise error
    assert len(ledger.findings["W-01"].failures) == 1


def test_a_check_that_runs_into_the_time_limit_fails() -> None:
    ledger = Ledger("scenario", ["W-01", "W-02"])

    async def act() -> None:
        with anyio.move_on_after(0.01), ledger.check("W-01"):
            await anyio.sleep(10)

    anyio.run(act)
    ledger.break_off("it took too long")
    assert [finding.failures[0].reason for finding in ledger.findings.values()] == [
        "it took too long", "the scenario broke off before: it took too long",
    ]  # fmt: skip


def test_a_scenario_that_breaks_off_after_its_last_check_is_no_pass() -> None:
    ledger = Ledger("scenario", ["W-01"])
    with ledger.check("W-01"):
        pass
    ledger.break_off("the server closed its output")
    assert ledger.findings["W-01"].failures
