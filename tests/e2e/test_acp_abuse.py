"""What clients do to an agent: frames that are none, silence, death, sessions without end (acp spec 4.2, 4.8, 5.1)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.acp.schema import AgentLines
from tests.support.program.acp_process import AcpProcess, acp_process, text_prompt
from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Place, alive, eventually
from tests.support.providers.scripts import shell

FRAMES: list[tuple[bytes, int | None]] = [
    (b"{bad", -32700),
    (b"\xff\xfe\x00", -32700),
    (b'{"jsonrpc":"2.0","id":1', -32700),
    (b"[" * 200_000, -32700),
    (b'{"a":' * 200_000, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
    (b"null", -32600),
    (b"17", -32600),
    (b"1" * 50_000, None),
    (b'"text"', -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"2.0","id":"x"}', -32600),
    (b'{"jsonrpc":"2.0","id":"x","method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":"x","method":"session/new","params":[]}', -32602),
    (b'{"jsonrpc":"2.0","id":"x","method":"session/new","params":"text"}', -32602),
    (b'{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":{"sessionId":null}}', -32602),
    (b'{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":{"sessionId":{}}}', -32602),
    (b'{"jsonrpc":"2.0","id":"x","method":"session/prompt"}', -32602),
    (b'{"jsonrpc":"2.0","id":"x","method":"session/set_config_option","params":{"value":[1e999]}}', None),
    (b'{"jsonrpc":"2.0","id":"x","method":""}', -32601),
    (b'{"jsonrpc":"2.0","id":"x","method":"_"}', -32601),
    (b'{"jsonrpc":"2.0","id":"x","method":"\\ud800"}', -32601),
    (b'{"jsonrpc":"2.0","id":99,"result":{}}', None),
    (b'{"jsonrpc":"2.0","id":0,"error":"no"}', None),
    (b'{"jsonrpc":"2.0","id":{},"result":null}', None),
    (b'{"jsonrpc":"2.0","method":"session/cancel","params":7}', None),
    (b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":["x"]}}', None),
    (b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{"a":[]}}}', None),
    (b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":null}}', None),
    (b'{"jsonrpc":"2.0","method":"initialize","params":{}}', None),
]
"""What a client writes, and the code of the error that it gets, where one is due."""


def test_no_frame_ends_or_blocks_the_agent(place: Place) -> None:
    place.script("text: Hello")
    check = AgentLines()
    with acp_process(place) as kimi:
        kimi.shake_hands()
        time.sleep(1.0)  # the library has taken over
        for frame, code in FRAMES:
            kimi.send_bytes(frame + b"\n")
            ping = kimi.request("session/list")
            answer = kimi.next_line()
            if code is not None:
                assert answer["error"]["code"] == code, frame[:80]
                answer = kimi.next_line()
            while answer.get("id") != ping:
                assert code is None, frame[:80]
                answer = kimi.next_line()
            assert answer["result"] == {"sessions": []}, frame[:80]
        kimi.send_bytes(b" \r\n\r\n\n")
        assert kimi.say(kimi.new_session(place), "hi")["result"]["stopReason"] == "end_turn"
        assert kimi.finish() == 0
        assert kimi.stderr == b""
    for line in kimi.lines:
        check.received(line)


CLIENT = """
import json, subprocess, sys, time

kimi = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def ask(call_id, method, **params):
    message = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}
    kimi.stdin.write(json.dumps(message).encode() + b"\\n")
    kimi.stdin.flush()

def wait_for(word):
    while word not in (line := kimi.stdout.readline()):
        pass
    return json.loads(line)

ask(0, "initialize", protocolVersion=1)
sessions = []
for number in (1, 2):
    ask(number, "session/new", cwd=sys.argv[1], mcpServers=[])
    sessions.append(wait_for(b'"id":%d,"result"' % number)["result"]["sessionId"])
ask(3, "session/set_mode", sessionId=sessions[0], modeId="yolo")
ask(4, "session/prompt", sessionId=sessions[0], prompt=[{"type": "text", "text": "go"}])
wait_for(b'"in_progress"')
ask(5, "session/prompt", sessionId=sessions[1], prompt=[{"type": "text", "text": "go"}])
wait_for(b'"session/request_permission"')
print(kimi.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="process groups of POSIX")
def test_killed_client_leaves_no_processes(place: Place) -> None:
    """One turn runs a command; the other waits for an answer that will never come."""
    place.script(shell("s1", "sleep 60 & echo $! > pid; wait"), shell("s2", "true"))
    command = [sys.executable, "-c", CLIENT, str(place.work), *kimi_command(), "acp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=place.work, env=place.full_environ()) as client:
        assert client.stdout is not None
        kimi = int(client.stdout.readline())
        command_file = place.work / "pid"
        assert eventually(lambda: command_file.exists() and bool(command_file.read_text(encoding="utf-8").strip()))
        client.kill()
    assert eventually(lambda: not alive(kimi), 5)
    assert not alive(int(command_file.read_text(encoding="utf-8")))


def resident_mb(kimi: AcpProcess) -> float:
    """Memory of the process in MB."""
    pages = Path(f"/proc/{kimi.process.pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_two_hundred_sessions_are_opened_and_closed(place: Place) -> None:
    place.script("text: Hello")
    with acp_process(place) as kimi:
        kimi.shake_hands()

        def visit(say: bool = False) -> None:
            session_id = kimi.new_session(place)
            if say:
                assert kimi.say(session_id, "hi")["result"]["stopReason"] == "end_turn"
            kimi.result("session/close", {"sessionId": session_id})

        def wave(count: int) -> None:
            """Open so many, more than may be live at a time, and close them."""
            opened = [kimi.new_session(place) for _ in range(count)]
            assert kimi.say(opened[0], "hi")["result"]["stopReason"] == "end_turn"
            for session_id in opened:
                kimi.result("session/close", {"sessionId": session_id})

        wave(80)
        level = resident_mb(kimi)
        for number in range(60):
            visit(say=number % 12 == 0)
        wave(120)
        assert eventually(lambda: resident_mb(kimi) < level + 5)
        assert len(os.listdir(f"/proc/{kimi.process.pid}/fd")) < 30
        assert kimi.error("session/prompt", text_prompt("none", "hi"))["code"] == -32602
        assert kimi.finish() == 0
