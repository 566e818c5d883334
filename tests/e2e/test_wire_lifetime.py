"""How the process ends, and what it leaves behind (wire spec 1.5)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time

import pytest

from tests.support.program.processes import all_gone, marked
from tests.support.program.program import kimi_command
from tests.support.program.unread import say, stalled, unread
from tests.support.program.wire_process import DEADLINE_S, Json, Place, alive, eventually
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, text_events
from tests.support.providers.scripts import call, shell, step, tool

CLOSED = "Wire connection closed before tool result was received."


def recorded_types(place: Place) -> list[str]:
    """The types of all records but the first line."""
    return [line["message"]["type"] for line in place.recorded()[1:]]


def without_approvals(lines: list[Json]) -> list[str]:
    """The types of what the event log keeps of these lines, parts of one text counted once."""
    types = [line["params"]["type"] for line in lines if "method" in line]
    kept = [name for name in types if name not in ("ApprovalRequest", "ApprovalResponse")]
    return [name for number, name in enumerate(kept) if number == 0 or (name, kept[number - 1]) != ("ContentPart",) * 2]


@pytest.mark.spec("W-25", "W-31")
@pytest.mark.parametrize("end", ["eof", "sigterm", "sigint"])
def test_handshake_alone_creates_no_session(place: Place, end: str) -> None:
    place.script("text: never")
    with place.wire() as kimi:
        kimi.initialize()
        started = time.monotonic()
        if end == "eof":
            assert kimi.finish() == 0
        else:
            kimi.process.send_signal(getattr(signal, end.upper()))
            assert kimi.wait() == (-signal.SIGTERM if end == "sigterm" else 0)
        assert time.monotonic() - started < 2
        assert kimi.stderr == b""
    assert place.session_dirs() == []


@pytest.mark.spec("W-26")
def test_the_end_of_the_input_answers_the_open_prompt(place: Place) -> None:
    place.script(shell("c1", "echo never > made.txt"), "text: never")
    with place.wire() as kimi:
        kimi.initialize()
        call_id = kimi.call("prompt", {"user_input": "go"})
        asked = kimi.until("ApprovalRequest")
        started = time.monotonic()
        kimi.end_input()
        rest = kimi.rest()
        assert kimi.wait() == 0
        assert time.monotonic() - started < 2
        assert rest[-1] == {"jsonrpc": "2.0", "id": call_id, "result": {"status": "cancelled"}}
        assert kimi.payloads("ApprovalResponse") == [{"request_id": asked["id"], "response": "reject", "feedback": ""}]
        assert kimi.types[-4:] == ["ApprovalResponse", "ToolResult", "StepInterrupted", "TurnEnd"]
        session = place.session_dirs()[0].name
        assert kimi.stderr.decode() == f"\nTo resume this session: kimi -r {session}\n"
    assert not (place.work / "made.txt").exists()
    assert recorded_types(place) == without_approvals(kimi.lines)


@pytest.mark.spec("W-27", "T-115")
def test_end_of_input_cancels_an_open_external_tool_call(place: Place) -> None:
    place.script(call("c1", "ext", {"a": 1}))  # a second model call would find no script and fail
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        call_id = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ToolCallRequest")
        kimi.end_input()
        assert kimi.rest()[-1] == {"jsonrpc": "2.0", "id": call_id, "result": {"status": "cancelled"}}
        assert kimi.wait() == 0
    results = [line["message"]["payload"] for line in place.recorded()[1:] if line["message"]["type"] == "ToolResult"]
    assert [(item["tool_call_id"], item["return_value"]["message"]) for item in results] == [("c1", CLOSED)]
    assert results[0]["return_value"]["display"] == [{"type": "brief", "text": "Wire closed"}]
    assert recorded_types(place).count("StepBegin") == 1
    assert CLOSED in str(place.context()[-1])


@pytest.mark.spec("W-28", "R-12")
def test_interrupt_cancels_the_turn_cleanly(place: Place) -> None:
    place.script(shell("c1", "sleep 30"), "text: never")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        call_id = kimi.call("prompt", {"user_input": "go"})
        kimi.until("StatusUpdate")
        kimi.process.send_signal(signal.SIGINT)
        assert kimi.rest()[-1] == {"jsonrpc": "2.0", "id": call_id, "result": {"status": "cancelled"}}
        assert kimi.wait() == 0


@pytest.mark.spec("W-28", "R-12")
def test_a_second_interrupt_ends_at_once(place: Place) -> None:
    """The first waits a while for somebody to read the last lines; the second does not."""
    place.script(step(*[f"text: {'x' * 200}"] * 20_000))
    with unread(place) as process:
        say(process, id="p", method="prompt", params={"user_input": "go"})
        assert eventually(lambda: bool(place.session_dirs()) and stalled(process.pid))
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert time.monotonic() - started < 1.4


@pytest.mark.parametrize("end", ["eof", "sigterm"])
def test_client_that_does_not_read_does_not_block_shutdown(place: Place, end: str) -> None:
    place.script(step(*[f"text: {'x' * 200}"] * 20_000))
    with unread(place) as process:
        say(process, id="p", method="prompt", params={"user_input": "go"})
        assert eventually(lambda: bool(place.session_dirs()) and stalled(process.pid))
        started = time.monotonic()
        if end == "eof":
            assert process.stdin is not None
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == (-signal.SIGTERM if end == "sigterm" else 0)
        assert time.monotonic() - started < 4
    assert recorded_types(place)[-1] == "TurnEnd"


@pytest.mark.spec("W-29", "W-30", "R-13")
def test_sigterm_during_turn_ends_it_and_session_resumes(place: Place) -> None:
    place.script(step("text: a", "text: b", shell("c1", "sleep 30 & echo $! > pid; mv pid child; wait")), "text: never")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        call_id = kimi.call("prompt", {"user_input": "go"})
        assert eventually((place.work / "child").exists)
        started = time.monotonic()
        kimi.process.send_signal(signal.SIGTERM)
        assert kimi.rest()[-1] == {"jsonrpc": "2.0", "id": call_id, "result": {"status": "cancelled"}}
        assert kimi.wait() == -signal.SIGTERM
        assert time.monotonic() - started < 2
        assert kimi.stderr == b""
        assert kimi.types[-3:] == ["ToolResult", "StepInterrupted", "TurnEnd"]
        assert recorded_types(place) == without_approvals(kimi.lines)
        assert not alive(int((place.work / "child").read_text()))
    [here] = json.loads((place.share / "kimi.json").read_text())["work_dirs"]
    assert here["last_session_id"] == place.session_dirs()[0].name
    place.script("text: resumed")
    with place.wire("--continue") as kimi:
        assert kimi.prompt("more")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert len(place.session_dirs()) == 1
    assert kimi.text == "resumed"
    with place.wire("--continue") as kimi:
        kimi.call("prompt", {"user_input": "exhausted"})
        kimi.until("StepBegin")
        kimi.process.kill()
    place.script("text: after the kill")
    with place.wire("--continue") as kimi:
        assert kimi.prompt("more")["result"] == {"status": "finished"}
    assert len(place.session_dirs()) == 1


@pytest.mark.spec("W-30")
def test_continue_finds_a_session_that_was_killed_in_its_first_turn(place: Place) -> None:
    place.script(shell("c1", "sleep 30"))
    with place.wire("--yolo") as kimi:
        kimi.call("prompt", {"user_input": "go"})
        kimi.until("StatusUpdate")
        kimi.process.kill()
    place.script("text: resumed")
    with place.wire("--continue") as kimi:
        assert kimi.prompt("more")["result"] == {"status": "finished"}
    assert len(place.session_dirs()) == 1
    roles = [record["role"] for record in place.context()]
    assert roles.count("user") == 2
    assert [record["tool_call_id"] for record in place.context() if record["role"] == "tool"] == ["c1"]


@pytest.mark.spec("W-32")
def test_closing_stdout_cancels_the_turn(place: Place) -> None:
    place.script(
        step("text: first", shell("c1", "touch first; sleep 60")), step("text: second", shell("c2", "touch second"))
    )
    with unread(place, "--yolo") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        say(process, id="p", method="prompt", params={"user_input": "go"})
        assert eventually((place.work / "first").exists)
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 1
    assert not (place.work / "second").exists()
    assert recorded_types(place)[-1] == "TurnEnd"
    assert "c2" not in str(place.context())


@pytest.mark.spec("W-35")
def test_the_prompt_option_is_ignored(place: Place) -> None:
    place.script("text: ok")
    with place.wire("--prompt", "never say this") as kimi:
        assert kimi.quiet(0.1)
        kimi.initialize()
        assert kimi.prompt("hi")["result"] == {"status": "finished"}
        assert kimi.payloads("TurnBegin") == [{"user_input": "hi"}]
    assert "--prompt" in (place.share / "logs" / "kimi.log").read_text(encoding="utf-8")


@pytest.mark.spec("W-37")
@pytest.mark.parametrize("end", ["eof", "sigint", "sigterm", "cancel"])
def test_no_child_of_a_tool_survives(place: Place, end: str) -> None:
    mark = f"mark-{place.root.name}"
    place.environ["KIMI_TEST_MARK"] = mark
    stubborn = "trap '' INT TERM HUP; sleep 60 & (trap '' TERM; sleep 61) & sleep 62"
    place.script(step(shell("c1", stubborn), shell("c2", "sleep 63 | cat")))
    with place.wire("--yolo") as kimi:
        call_id = kimi.call("prompt", {"user_input": "go"})
        kimi.until("StatusUpdate")
        assert eventually(lambda: len(marked(mark)) > 5)
        started = time.monotonic()
        match end:
            case "eof":
                kimi.end_input()
            case "cancel":
                kimi.call("cancel")
                assert kimi.response(call_id)["result"] == {"status": "cancelled"}
                kimi.end_input()
            case _:
                kimi.process.send_signal(getattr(signal, end.upper()))
        kimi.wait()
        assert time.monotonic() - started < 3
    assert all_gone(mark)


def test_stalled_provider_does_not_block_shutdown(place: Place) -> None:
    with loopback(Reply(text_events("half"), fault="stall", fault_after=1)) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            call_id = kimi.call("prompt", {"user_input": "go"})
            kimi.until("ContentPart")
            started = time.monotonic()
            kimi.end_input()
            assert kimi.rest()[-1] == {"jsonrpc": "2.0", "id": call_id, "result": {"status": "cancelled"}}
            assert kimi.wait() == 0
            assert time.monotonic() - started < 2


@pytest.mark.parametrize("shared", [False, True], ids=["two", "one"])
def test_sockets_work_as_standard_streams(place: Place, shared: bool) -> None:
    """Node gives its children sockets. One for both directions has input to read where only a hang-up is looked for."""
    place.script("text: ok", step("text: first", shell("c1", "touch first; sleep 0.5")), shell("c2", "touch second"))
    ours_in, theirs_in = socket.socketpair()
    ours_out, theirs_out = (ours_in, theirs_in) if shared else socket.socketpair()
    with subprocess.Popen(
        [*kimi_command(), "--wire", "--yolo"],
        stdin=theirs_in.fileno(),
        stdout=theirs_out.fileno(),
        stderr=subprocess.DEVNULL,
        cwd=place.work,
        env=place.full_environ(),
    ) as process:
        theirs_in.close()
        theirs_out.close()
        ours_in.sendall(b'{"id":"p","method":"prompt","params":{"user_input":"hi"}}\n')
        received = b""
        while b'"id":"p"' not in received:
            received += ours_out.recv(65_536)
        assert b'"finished"' in received
        ours_in.sendall(b'{"id":"q","method":"prompt","params":{"user_input":"go"}}\n')
        assert eventually((place.work / "first").exists)
        ours_out.close()
        assert process.wait(DEADLINE_S) in ((0, 1) if shared else (1,))  # shared, the input ends as well
        ours_in.close()
    assert not (place.work / "second").exists()
