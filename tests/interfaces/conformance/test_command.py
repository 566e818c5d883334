"""`kimi conformance` as a command: its report, its files, its exit status, and servers of older versions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Place

OLD_SERVER = """
import json, sys
for line in sys.stdin:
    try:
        message = json.loads(line)
    except ValueError:
        error = {"code": -32700, "message": "Invalid JSON format", "data": None}
        print(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}), flush=True)
        continue
    message = message if isinstance(message, dict) else {}
    if message.get("method") == "initialize":
        result = {"protocol_version": "1.2", "server": {"name": "old", "version": "0.1"}, "slash_commands": []}
        answer = {"result": result}
    else:
        answer = {"error": {"code": -32603, "message": "not today", "data": None}}
    print(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}), flush=True)
"""


@pytest.mark.spec("R-409")
def test_a_passing_run_is_reported_in_three_forms(tmp_path: Path) -> None:
    place = Place(tmp_path)
    options = ["--only", "W-05,W-14,W-36", "--junit", "report.xml", "--json", "report.json", "--verbose"]
    done = place.run("conformance", *options, "--", *kimi_command(), "--wire", timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    assert text.startswith("Suite wire, version 1.10, Kimi Code CLI ")
    assert "W-05 passed: invalid JSON" in text
    assert "W-36 not to be judged from outside (it is about another command of the program)" in text
    assert text.endswith("2 passed, 1 not to be judged from outside\n")
    assert "messages of every class" in done.stderr.decode()
    report = json.loads((place.work / "report.json").read_text(encoding="utf-8"))
    assert report["counts"]["passed"] == 2
    suite = ElementTree.parse(place.work / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "0", "1")


@pytest.mark.spec("R-409", "R-410")
def test_a_failing_item_is_named_with_its_traffic_and_parts_of_newer_versions(tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = place.work / "old.py"
    program.write_text(OLD_SERVER, encoding="utf-8")
    options = ["--only", "W-05,W-14,W-83", "--timeout", "1", "--junit", "report.xml", "--quiet"]
    done = place.run("conformance", *options, "--", sys.executable, str(program), timeout=60)
    assert done.returncode == 1, done.stderr.decode()
    text = done.stdout.decode()
    assert text.startswith("Suite wire, version 1.2, old 0.1\n")
    assert "W-83 lacking in what the server speaks (came with version 1.4)" in text
    failed = text[text.index("W-14 FAILED: unknown method") :]
    assert "no error -32601, but" in failed
    assert '→ {"jsonrpc": "2.0", "id": ' in failed
    assert "not today" in failed
    assert text.endswith("1 passed, 1 FAILED, 1 lacking in what the server speaks\n")
    assert not done.stderr
    case = ElementTree.parse(place.work / "report.xml").getroot().find(".//failure/..")
    assert case is not None
    assert str(case.get("name")).startswith("W-14 ")


@pytest.mark.spec("R-409")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name the server: `kimi conformance -- COMMAND...`"),
        (["--only", "W-999", "--", "true"], "There is no item W-999"),
        (["--protocol", "mcp", "--", "true"], "There is no suite 'mcp'"),
        (["--url", "http://x"], "--url must begin with ws:// or wss://"),
        (["--protocol", "acp", "--url", "ws://x"], "give a command instead of --url"),
        (["--", "no-such-program-here"], "There is no program 'no-such-program-here'"),
        (["--", sys.executable, "-c", ""], "The first handshake failed: no response"),
    ],
    ids=["nothing", "item", "suite", "url", "editors", "program", "mute"],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = Place(tmp_path).run("conformance", *arguments, timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert not done.stdout
