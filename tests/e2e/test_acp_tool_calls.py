"""Tool calls over the Agent Client Protocol, from a real process; every line it writes is checked strictly."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from tests.support.acp.schema import AgentLines
from tests.support.program.acp_process import AcpProcess, acp_process, choose
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import call_reply, text_reply
from tests.support.providers.scripts import call, shell, step

DONE = step("text: Done.")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def kimi(place: Place) -> Generator[AcpProcess, None, None]:
    """A process whose lines are all valid."""
    with acp_process(place.script("text: unused")) as process:
        yield process
    check = AgentLines()
    for line in process.lines:
        check.received(line)


def states(kimi: AcpProcess, call_id: str) -> list[str]:
    """The states that a call went through."""
    shown = [*kimi.updates("tool_call"), *kimi.updates("tool_call_update")]
    return [update["status"] for update in shown if update["toolCallId"].endswith(call_id) and "status" in update]


def end_of(kimi: AcpProcess, call_id: str) -> Json:
    """The last update of a call."""
    return [update for update in kimi.updates("tool_call_update") if update["toolCallId"].endswith(call_id)][-1]


def run(kimi: AcpProcess, place: Place, scripts: Sequence[str], option: str = "approve") -> Json:
    """A session with one prompt; gives the answer."""
    place.script(*scripts)
    kimi.shake_hands()
    return kimi.say(kimi.new_session(place), "go", choose(option))


@pytest.mark.spec("A-83")
@pytest.mark.parametrize(
    ("old", "new"),
    [("one\r\ntwo\r\nthree\r\n", "one\r\n2\r\nthree\r\n"), ("one\ntwo\nthree", "one\n2\nthree"), ("two\n", "2\n")],
    ids=["crlf", "no last line break", "one line"],
)
def test_a_diff_is_the_file_byte_for_byte(kimi: AcpProcess, place: Place, old: str, new: str) -> None:
    (place.work / "a.txt").write_bytes(old.encode())
    edit = call("e1", "StrReplaceFile", {"path": "a.txt", "edit": {"old": "two", "new": "2"}})
    write = call("w1", "WriteFile", {"path": "new.txt", "content": new})
    run(kimi, place, [step(edit), step(write), DONE])
    assert (place.work / "a.txt").read_bytes() == new.encode()
    changed = {"type": "diff", "path": str(place.work / "a.txt"), "oldText": old, "newText": new}
    created = {"type": "diff", "path": str(place.work / "new.txt"), "newText": new}
    asked = [line["params"]["toolCall"] for line in kimi.lines if line.get("method") == "session/request_permission"]
    assert [request["content"] for request in asked] == [[changed], [created]]
    assert end_of(kimi, "/e1")["content"] == [changed]
    assert end_of(kimi, "/w1")["content"] == [created]


@pytest.mark.spec("A-76")
def test_a_call_is_pending_until_it_really_runs(kimi: AcpProcess, place: Place) -> None:
    seen: list[Any] = []

    def serve(request: Json) -> Json:
        seen.append((request["params"]["toolCall"]["status"], states(kimi, "/s1")))
        return {"result": {"outcome": {"outcome": "selected", "optionId": "approve"}}}

    place.script(step(shell("s1", "sleep 0.5; echo ok")), DONE)
    kimi.shake_hands()
    kimi.say(kimi.new_session(place), "go", serve)
    assert seen == [("pending", ["pending"])]
    assert states(kimi, "/s1") == ["pending", "in_progress", "completed"]


@pytest.mark.spec("A-85")
def test_a_rejected_call_fails_with_the_reason(kimi: AcpProcess, place: Place) -> None:
    answer = run(kimi, place, [step(shell("s1", "touch made")), DONE], "reject")
    assert answer["result"]["stopReason"] == "end_turn"
    assert states(kimi, "/s1") == ["pending", "failed"]
    assert "rejected by the user" in end_of(kimi, "/s1")["content"][0]["content"]["text"]
    assert not (place.work / "made").exists()
    assert kimi.said == ""


@pytest.mark.spec("A-88")
@pytest.mark.spec("A-85")
@pytest.mark.parametrize("option", ["approve", "reject"])
def test_subagent_asks_the_user(kimi: AcpProcess, place: Place, option: str) -> None:
    agent = call("a1", "Agent", {"description": "Run it", "prompt": "Run touch made.", "subagent_type": "coder"})
    report = step("text: " + "I ran the command and looked at what it did in the work dir. " * 5)
    answer = run(kimi, place, [step(agent), step(shell("x1", "touch made")), report, DONE], option)
    assert answer["result"]["stopReason"] == "end_turn"
    inner = [update for update in kimi.updates("tool_call") if update["toolCallId"].endswith("/a1/x1")]
    assert [update["title"] for update in inner] == ["coder › Shell: touch made"]
    asked = [line["params"]["toolCall"] for line in kimi.lines if line.get("method") == "session/request_permission"]
    assert [request["toolCallId"] for request in asked] == [inner[0]["toolCallId"]]
    order = [line.get("params", {}).get("update", {}).get("toolCallId") or line.get("method") for line in kimi.lines]
    assert order.index(inner[0]["toolCallId"]) < order.index("session/request_permission")
    assert (place.work / "made").exists() == (option == "approve")
    assert states(kimi, "/a1/x1")[-1] == ("completed" if option == "approve" else "failed")
    assert states(kimi, "/a1")[-1] == "completed"
    assert kimi.said == "Done."


@pytest.mark.spec("A-87")
@pytest.mark.parametrize(
    "members",
    [
        {"result": {"outcome": {"outcome": "selected", "optionId": "surprise"}}},
        {"result": {"outcome": {"outcome": "cancelled"}}},
        {"result": {}},
        {"error": {"code": -32603, "message": "no window"}},
    ],
    ids=["unknown option", "cancelled", "no outcome", "error"],
)
def test_invalid_permission_answer_rejects(kimi: AcpProcess, place: Place, members: Json) -> None:
    place.script(step(shell("s1", "touch made")), DONE)
    kimi.shake_hands()
    answer = kimi.say(kimi.new_session(place), "go", lambda request: members)
    assert answer["result"]["stopReason"] == "end_turn"
    assert states(kimi, "/s1") == ["pending", "failed"]
    assert not (place.work / "made").exists()


@pytest.mark.spec("A-87")
def test_client_disconnect_does_not_approve(kimi: AcpProcess, place: Place) -> None:
    place.script(step(shell("s1", "touch made")), DONE)
    kimi.shake_hands()
    session = kimi.new_session(place)
    kimi.request("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]})
    kimi.until_method("session/request_permission")
    assert kimi.finish() == 0
    assert not (place.work / "made").exists()


@pytest.mark.spec("A-57")
def test_prompt_attachments_reach_the_model(kimi: AcpProcess, place: Place) -> None:
    (place.work / "a.py").write_text("answer = 42\n", encoding="utf-8")
    uri = (place.work / "a.py").as_uri()
    place.capabilities = ("image_in",)
    read = call_reply(("r1", "ReadFile", json.dumps({"path": str(place.work / "a.py")})))
    prompt = [
        {"type": "text", "text": "Look"},
        {"type": "resource_link", "uri": uri, "name": "a.py"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "b = 1"}},
        {"type": "resource", "resource": {"uri": "file:///c.png", "blob": PIXEL, "mimeType": "image/png"}},
        {"type": "resource", "resource": {"uri": "file:///d.bin", "blob": "AAAA", "mimeType": "a/b"}},
    ]
    with loopback(read, text_reply("Done.")) as server:
        place.provider(server.base_url)
        kimi.shake_hands()
        kimi.result("session/prompt", {"sessionId": kimi.new_session(place), "prompt": prompt})
        asked, answered = (request.json["messages"] for request in server.requests)
    text, link, embedded, picture, blob = asked[-1]["content"]
    assert text["text"] == "Look"
    assert link["text"] == f'<resource_link uri="{uri}" name="a.py" />'
    assert embedded["text"] == '<resource uri="file:///b.py">\nb = 1\n</resource>'
    assert picture["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert 'uri="file:///d.bin" type="a/b" size="3"' in blob["text"]
    assert "answer = 42" in json.dumps(answered[-1])
