"""Lines in and out: what is accepted, what is refused, and that the next line is always served (wire spec 1)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.program.program import kimi_command
from tests.support.program.unread import read_until, say, stalled, unread
from tests.support.program.wire_process import Json, Place, WireProcess, eventually
from tests.support.providers.scripts import answer, error_of, shell, step, tool, tool_answer

PARSE = (-32700, "Invalid JSON format")
INVALID = (-32600, "Invalid request")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[WireProcess, None, None]:
    """One process for all tests that leave it as they found it."""
    place = Place(tmp_path_factory.mktemp("framing")).script(*["text: ok"] * 100)
    with place.wire() as kimi:
        kimi.initialize()
        yield kimi


def exchange(kimi: WireProcess, line: str | bytes) -> Json:
    """Send a line as it is; gives the next line that comes, which must be a response or an error."""
    kimi.send_bytes((line.encode() if isinstance(line, str) else line) + b"\n")
    found = kimi.next_line()
    assert "method" not in found
    return found


def refused(kimi: WireProcess, line: str | bytes) -> tuple[int, str]:
    """The one error without id that a line is answered with; the process serves on."""
    found = exchange(kimi, line)
    assert found["id"] is None
    assert error_of(exchange(kimi, '{"jsonrpc":"2.0","id":"after","method":"cancel"}'))[0] == -32000
    return error_of(found)


PING = '{"jsonrpc":"2.0","id":"%s","method":"initialize","params":{"protocol_version":"1.10"}}'


@pytest.mark.spec("W-02", "W-03", "W-13")
def test_line_endings_blank_lines_and_ids_are_accepted(served: WireProcess) -> None:
    assert exchange(served, PING % "crlf" + "\r")["id"] == "crlf"
    served.send_bytes(b"\n\r\n   \n\t\n")
    assert exchange(served, PING % "")["id"] == ""
    for number in (0, 7, -3, 2**70):
        found = exchange(served, json.dumps({"id": number, "method": "nope"}))
        assert found["id"] == number
        assert type(found["id"]) is int
    for bad in ("1.5", "1.0", "{}", "true", "[1]"):
        assert refused(served, f'{{"jsonrpc":"2.0","id":{bad},"method":"cancel"}}') == INVALID


@pytest.mark.spec("W-05", "W-09", "W-10", "W-11", "W-12")
def test_invalid_message_gets_one_error_and_next_line_is_served(served: WireProcess) -> None:
    for broken in ("{", "nope", '{"a":1', "{'a':1}", '{"a":1}x', '"', "\x00", '{"id":1,}', "[" * 10_000 + "]" * 10_000):
        assert refused(served, broken) == PARSE
    for constant in ("NaN", "Infinity", "-Infinity"):
        assert refused(served, constant) == PARSE
        assert refused(served, f'{{"jsonrpc":"2.0","id":"1","method":"cancel","params":{{"x":{constant}}}}}') == PARSE
    deep = '{"jsonrpc":"2.0","id":"1","method":"prompt","params":{"user_input":%s}}' % ("[" * 10_000 + "]" * 10_000)
    assert refused(served, deep) == PARSE
    for odd in ("[]", f"[{PING % 'a'},{PING % 'b'}]", "1", "null", '"text"', "true"):
        assert refused(served, odd) == INVALID
    for version in ('"2.1"', '"1.0"', "2.0", "null", "{}"):
        assert refused(served, f'{{"jsonrpc":{version},"id":"1","method":"cancel"}}') == INVALID
    assert exchange(served, '{"id":"bare","method":"initialize","params":{"protocol_version":"1"}}')["id"] == "bare"
    assert refused(served, "{}") == INVALID
    assert refused(served, '{"jsonrpc":"2.0"}') == INVALID
    assert refused(served, '{"jsonrpc":"2.0","result":{}}') == INVALID
    for method in ("1", "null", "{}", "[]"):
        assert refused(served, f'{{"jsonrpc":"2.0","id":"1","method":{method}}}') == INVALID


@pytest.mark.spec("W-14", "W-15")
def test_unknown_methods_are_refused(served: WireProcess) -> None:
    for method in ("nope", "", "Prompt", "event", "request", "tools/list", "\u2028", "__init__"):
        found = exchange(served, json.dumps({"jsonrpc": "2.0", "id": "x", "method": method, "params": {"type": "a"}}))
        assert found["id"] == "x"
        assert error_of(found) == (-32601, f"Unexpected method received: {method}")
        served.send({"jsonrpc": "2.0", "method": method})
    assert exchange(served, PING % "quiet")["id"] == "quiet"


@pytest.mark.spec("W-07", "W-08")
def test_invalid_unicode_is_repaired(served: WireProcess) -> None:
    served.send_bytes(b'{"id":"s","method":"prompt","params":{"user_input":"a\\ud800b\\ud83d\\ude00"}}\n')
    assert served.until("TurnBegin") == {"user_input": "a\ufffdb\U0001f600"}
    assert served.response("s")["result"] == {"status": "finished"}
    served.send_bytes(b'{"id":"t","method":"prompt","params":{"user_input":"x\xff\xfey\xc3"}}\n')
    assert served.until("TurnBegin") == {"user_input": "x\ufffd\ufffdy\ufffd"}
    assert served.response("t")["result"] == {"status": "finished"}
    found = exchange(served, b'{"id":"\\udfff","method":"\xf0"}')
    assert (found["id"], found["error"]["message"]) == ("\ufffd", "Unexpected method received: \ufffd")
    assert refused(served, b"\xff\xfe\x00") == PARSE


@pytest.mark.spec("W-18")
def test_unknown_members_are_ignored_at_every_level(tmp_path: Path) -> None:
    more = {"zz": [1, {"a": None}], "extra": "x"}
    place = Place(tmp_path).script(step('tool_call: {"id":"c1","name":"ext"}', shell("c2", "true")), "text: ok")
    with place.wire() as kimi:
        client = {"name": "n", **more}
        hook = {"id": "h", "event": "Notification", **more}
        capabilities = {"supports_question": False, **more}
        params = {"protocol_version": "1.10", "client": client, "external_tools": [tool("ext") | more], **more}
        kimi.send(
            {"id": "i", "method": "initialize", "params": params | {"capabilities": capabilities, "hooks": [hook]}}
            | more
        )
        assert kimi.response("i")["result"]["external_tools"]["accepted"] == ["ext"]
        part = {"type": "text", "text": "hi", **more}
        kimi.send({"id": "p", "method": "prompt", "params": {"user_input": [part], **more}, **more})
        assert kimi.until("TurnBegin") == {"user_input": [{"type": "text", "text": "hi"}]}
        for _ in range(2):
            asked = kimi.until_request()
            result: Json = {"request_id": asked["id"], "response": "approve"}
            if "name" in asked:
                result = tool_answer(asked["id"])
                result["return_value"] |= more
            answer(kimi, asked["id"], result=result | more, **more)
        assert kimi.response("p")["result"] == {"status": "finished"}
        assert [item["return_value"]["is_error"] for item in kimi.payloads("ToolResult")] == [False, False]


@pytest.mark.spec("W-16")
def test_notifications_are_not_answered(place: Place) -> None:
    place.script(shell("c1", "sleep 30"), "text: ok")
    with place.wire("--yolo") as kimi:
        kimi.send({"jsonrpc": "2.0", "method": "prompt", "params": {"user_input": "never"}})
        kimi.send({"jsonrpc": "2.0", "id": None, "method": "prompt", "params": {"user_input": "never"}})
        kimi.send({"jsonrpc": "2.0", "method": "cancel"})
        kimi.initialize()
        first = kimi.call("prompt", {"user_input": "go"})
        kimi.until("StatusUpdate")
        kimi.send({"jsonrpc": "2.0", "method": "cancel", "params": None})
        assert kimi.response(first)["result"] == {"status": "cancelled"}
        assert kimi.payloads("TurnBegin") == [{"user_input": "go"}]
        assert all("method" in line or line["id"] in ("1", first) for line in kimi.lines)


@pytest.mark.spec("W-01", "W-19")
def test_every_output_line_is_valid_json_rpc(served: WireProcess) -> None:
    text = 'quote " backslash \\ tab \t newline \n return \r nul \x00 é 漢 \U0001f600 \u2028\u2029\x85 end'
    served.response(served.call("prompt", {"user_input": text}))
    served.response(served.call("prompt", {"user_input": 5}))
    served.response(served.call("cancel"))
    assert text in [item["user_input"] for item in served.payloads("TurnBegin")]
    for raw in list(served.raw):
        line = raw.decode("utf-8")
        assert line.endswith("\n")
        assert len(line.splitlines()) == 1
        assert "\r" not in line
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert message["method"] in ("event", "request")
            assert set(message["params"]) == {"type", "payload"}
        elif "error" in message:
            error_of(message)
        else:
            assert set(message) == {"jsonrpc", "id", "result"}


LINES_IN_NODE = """
const lines = require('readline').createInterface({input: process.stdin, crlfDelay: Infinity});
let count = 0;
lines.on('line', (line) => { JSON.parse(line); count += 1; });
lines.on('close', () => console.log(count));
"""


@pytest.mark.spec("W-06")
def test_node_reads_one_line_per_message(served: WireProcess) -> None:
    served.response(served.call("prompt", {"user_input": "a\u2028b\u2029c\u0085d"}))
    output = b"".join(served.raw)
    assert b"a\\u2028b\\u2029c\\u0085d" in output
    assert not [piece for piece in (b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\x85") if piece in output]
    node = shutil.which("node")
    if node is not None:  # readline splits at the separators; without Node the check of the bytes stands alone
        counted = subprocess.run([node, "-e", LINES_IN_NODE], input=output, capture_output=True, timeout=20, check=True)
        assert int(counted.stdout) == output.count(b"\n")


@pytest.mark.spec("W-04", "W-23")
def test_byte_order_mark_and_unterminated_last_line_are_accepted(place: Place) -> None:
    place.script("text: ok")
    with place.wire() as kimi:
        first = (PING % "first").encode()
        kimi.send_bytes(b"\xef")
        kimi.send_bytes(b"\xbb\xbf" + first + b"\n")
        assert kimi.next_line()["id"] == "first"
        kimi.send_bytes((PING % "last").encode())
        kimi.end_input()
        assert [line["id"] for line in kimi.rest()] == ["last"]
        assert kimi.wait() == 0


def peak_memory(pid: int) -> int:
    """The most memory that a process has had so far, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


MIB = 1024 * 1024


@pytest.mark.spec("W-17")
def test_long_lines_pass_up_to_the_limit(place: Place) -> None:
    place.config = f"[wire]\nmax_line_bytes = {6 * MIB}\n"
    place.script("text: one", "text: two", "text: three")
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("x" * 5 * MIB)["result"] == {"status": "finished"}
        assert len(kimi.payloads("TurnBegin")[0]["user_input"]) == 5 * MIB
        before = peak_memory(kimi.process.pid)
        for _ in range(3):
            kimi.send({"id": "big", "method": "prompt", "params": {"user_input": "y" * 20 * MIB}})
            line = kimi.next_line()
            assert (line["id"], *error_of(line)) == (None, -32600, "Message too large")
        kimi.send_bytes(b"z" * 20 * MIB + b"\n" + (PING % "next").encode() + b"\n")
        assert error_of(kimi.next_line()) == (-32600, "Message too large")
        assert kimi.next_line()["id"] == "next"
        assert peak_memory(kimi.process.pid) - before < 12 * MIB
        assert kimi.prompt("short")["result"] == {"status": "finished"}


def test_twenty_megabytes_pass_under_the_default_limit(place: Place) -> None:
    place.script("text: ok")
    with place.wire() as kimi:
        call_id = kimi.call("prompt", {"user_input": [{"type": "text", "text": "é" * 10 * MIB}]})
        assert kimi.response(call_id)["result"] == {"status": "finished"}
        assert error_of(exchange(kimi, '{"id":1,"method":"cancel"}'))[0] == -32000


PRINTS = """
import os, sys

def hook(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn") and not hook.inside:
        hook.inside = True
        os.write(1, b"stray bytes\\n")
        sys.__stdout__.write("stray print\\n")
        sys.__stdout__.flush()
        os.system("echo stray child")
        hook.inside = False

hook.inside = False
sys.addaudithook(hook)
"""


@pytest.mark.spec("W-20", "R-14")
def test_stdout_contains_only_protocol_lines(place: Place, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(PRINTS, encoding="utf-8")
    inherited = os.environ.get("PYTHONPATH")
    place.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), *([inherited] if inherited else [])])
    place.script(shell("c1", "echo to-one; echo to-two >&2; echo to-terminal > /proc/self/fd/1"), "text: ok")
    with place.wire("--yolo", "--debug") as kimi:
        kimi.initialize()
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert "to-one" in kimi.payloads("ToolResult")[0]["return_value"]["output"]
        assert kimi.finish() == 0
        assert b"stray" not in b"".join(kimi.raw)
        assert b"stray" not in kimi.stderr
    log = (place.share / "logs" / "kimi.log").read_text(encoding="utf-8")
    assert all(what in log for what in ("stray bytes", "stray print", "stray child"))


@pytest.mark.spec("W-21")
def test_regular_files_work_as_stdin_and_stdout(place: Place, tmp_path: Path) -> None:
    place.script("text: ok")
    script, output = tmp_path / "script.jsonl", tmp_path / "out.jsonl"
    prompt = '{"jsonrpc":"2.0","id":"p","method":"prompt","params":{"user_input":"hi"}}'
    script.write_text(f"{PING % 'i'}\n{prompt}\n", encoding="utf-8")
    with script.open("rb") as source, output.open("wb") as sink:
        done = subprocess.run(
            [*kimi_command(), "--wire"],
            stdin=source, stdout=sink, stderr=subprocess.PIPE, cwd=place.work, env=place.full_environ(), timeout=20,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0
    lines: list[Json] = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["id"] == "i"
    assert [line["params"]["type"] for line in lines[1:-1]][:: len(lines) - 3] == ["TurnBegin", "TurnEnd"]
    assert (lines[-1]["id"], lines[-1]["result"]["status"]) == ("p", "cancelled")


@pytest.mark.spec("W-24")
def test_two_hundred_concurrent_requests_are_answered(served: WireProcess) -> None:
    methods = ("initialize", "cancel", "nope", "prompt")
    sent: list[Json] = []
    for number in range(200):
        params = {"protocol_version": "1.10", "user_input": 5}
        sent.append({"id": f"r{number}", "method": methods[number % 4], "params": params})
    served.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in sent))
    found = [served.next_line() for _ in sent]
    assert [line["id"] for line in found] == [message["id"] for message in sent]
    codes = [line["error"]["code"] if "error" in line else 0 for line in found]
    assert codes == [0, -32000, -32601, -32602] * 50


GOOD: tuple[Json, ...] = (
    {"jsonrpc": "2.0", "id": "g", "method": "initialize", "params": {"protocol_version": "1.10", "hooks": []}},
    {"jsonrpc": "2.0", "id": "g", "method": "prompt", "params": {"user_input": [{"type": "text", "text": "x"}]}},
    {"jsonrpc": "2.0", "id": "g", "method": "cancel"},
    {"jsonrpc": "2.0", "id": "g", "method": "replay"},
    {"jsonrpc": "2.0", "id": "g", "result": {"request_id": "g", "response": "approve"}},
    {"jsonrpc": "2.0", "id": "g", "error": {"code": 1, "message": "x"}},
)
PIECES = (
    "",
    "[",
    "}",
    '"',
    ",",
    ":",
    "null",
    "-",
    "1e999",
    "\\ud800",
    "\\u0000",
    "\ufeff",
    "{}",
    "[[",
    "true",
    " ",
    "9" * 5000,
)


def spoilt(source: random.Random) -> bytes:
    """A good message with pieces of it replaced by others."""
    line = json.dumps(source.choice(GOOD))
    for _ in range(source.randint(0, 3)):
        start = source.randrange(len(line) + 1)
        line = line[:start] + source.choice(PIECES) + line[start + source.randint(0, 8) :]
    raw = line.replace("\n", "").encode()
    return raw if source.random() < 0.9 else raw[: source.randrange(len(raw) + 1)] + bytes([source.randrange(128, 256)])


def test_no_input_line_ends_the_process(tmp_path: Path) -> None:
    source = random.Random(17)
    place = Place(tmp_path).script(*["text: ok"] * 1000)
    with place.wire() as kimi:
        for number in range(20):
            kimi.send_bytes(b"".join(spoilt(source) + b"\n" for _ in range(50)))
            kimi.send({"id": f"mark {number}", "method": "nope"})
            assert error_of(kimi.response(f"mark {number}"))[0] == -32601
        kimi.send({"id": "stop", "method": "cancel"})
        kimi.response("stop")
        last = kimi.prompt("good")
        while "error" in last:  # the turn of a message that was not spoilt may still be ending
            assert last["error"]["code"] == -32000
            last = kimi.prompt("good")
        assert last["result"] == {"status": "finished"}
        assert all(
            line["error"]["code"] in (-32700, -32600, -32601, -32602, -32000) for line in kimi.lines if "error" in line
        )
        assert kimi.finish() == 0


@pytest.mark.spec("W-22")
def test_a_client_that_stops_reading_can_still_cancel(place: Place) -> None:
    """The model says far more than all buffers hold. The cancel must be heard although nobody reads."""
    place.config = "[wire]\nmax_queued_bytes = 65536\n"
    pieces = [f"text: {number:06d} {'x' * 200}" for number in range(20_000)]
    place.script(step(*pieces), "text: next")
    with unread(place) as process:
        say(process, id="p", method="prompt", params={"user_input": "go"})
        assert eventually(lambda: bool(place.session_dirs()) and stalled(process.pid))
        say(process, id="c", method="cancel")
        log = place.session_dirs()[0] / "wire.jsonl"
        assert eventually(lambda: b"00000" in log.read_bytes())  # the cancelled turn has flushed what was said
        said = read_until(process, "p")
        assert said[-1]["result"] == {"status": "cancelled"}
        shown = [line["params"]["payload"]["text"][:6] for line in said if is_text(line)]
        assert shown == [f"{number:06d}" for number in range(len(shown))]
        assert 0 < len(shown) < 20_000
        kept = [line["message"]["payload"] for line in place.recorded() if "message" in line]
        assert next(part["text"] for part in kept if "text" in part).count("x" * 200) == len(shown)
        say(process, id="q", method="prompt", params={"user_input": "again"})
        assert read_until(process, "q")[-1]["result"] == {"status": "finished"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def is_text(line: Json) -> bool:
    """Is it an event with text of the assistant?"""
    return line.get("method") == "event" and line["params"]["type"] == "ContentPart"
