"""What the event log keeps of a turn, and when (wire spec 8)."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, call_events, chunk, end_events, text_events
from tests.support.providers.scripts import answer, call, shell, step, tool, tool_answer


def messages(place: Place) -> list[Json]:
    """The recorded messages, without the first line."""
    return [line["message"] for line in place.recorded()[1:]]


def types(place: Place) -> list[str]:
    """The types of the recorded messages."""
    return [message["type"] for message in messages(place)]


TEXT_TURN = ["TurnBegin", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]


@pytest.mark.spec("W-126", "W-132")
def test_two_text_turns_are_recorded(place: Place) -> None:
    place.script("text: one", "text: two", "text: three")
    before = time.time()
    with place.wire("--session", "s") as kimi:
        kimi.initialize()
        kimi.prompt("first")
        first = place.recorded()
        assert first[0] == {"type": "metadata", "protocol_version": "1.10"}
        assert types(place) == TEXT_TURN
        kimi.prompt("second")
        assert place.recorded()[: len(first)] == first
        assert types(place) == TEXT_TURN * 2
        assert kimi.finish() == 0
        shown = [line["params"] for line in kimi.lines if line.get("method") == "event"]
        assert messages(place) == shown
    with place.wire("--session", "s") as kimi:
        kimi.prompt("third")
        assert types(place) == TEXT_TURN * 3
    lines = place.recorded()
    assert [line.get("type") for line in lines].count("metadata") == 1
    stamps = [line["timestamp"] for line in lines[1:]]
    assert stamps == sorted(stamps)
    assert before <= stamps[0] <= stamps[-1] <= time.time()
    assert all(list(line) == ["timestamp", "message"] for line in lines[1:])


@pytest.mark.spec("W-127")
def test_deltas_are_merged(place: Place) -> None:
    arguments = '{"command":"echo a long enough command"}'
    events = [
        *(chunk({"reasoning_content": piece}) for piece in ("h", "m", "?")),
        *text_events("He", "llo", " \u2028"),
        *call_events(0, "c1", "Shell", arguments, piece=3),
        *call_events(1, "c2", "Nope", "{}", piece=1),
        *end_events("tool_calls"),
    ]
    with loopback(Reply(events), Reply([*text_events("do", "ne"), *end_events()])) as server:
        place.provider(server.base_url)
        with place.wire("--yolo") as kimi:
            kimi.initialize()
            kimi.prompt("go")
            assert len(kimi.payloads("ContentPart")) > 4
            assert len(kimi.payloads("ToolCallPart")) > 4
    kept = messages(place)
    parts = [message["payload"] for message in kept if message["type"] == "ContentPart"]
    assert parts == [
        {"type": "think", "think": "hm?", "encrypted": None},
        {"type": "text", "text": "Hello \u2028"},
        {"type": "text", "text": "done"},
    ]
    calls = [message["payload"] for message in kept if message["type"] == "ToolCall"]
    assert calls == [
        {"type": "function", "id": "c1", "function": {"name": "Shell", "arguments": arguments}, "extras": None},
        {"type": "function", "id": "c2", "function": {"name": "Nope", "arguments": "{}"}, "extras": None},
    ]
    assert "ToolCallPart" not in types(place)


QUESTION = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}


def answer_to(line: Json) -> Json:
    """The result that a willing client gives to any request."""
    payload = line["params"]["payload"]
    match line["params"]["type"]:
        case "ApprovalRequest":
            return {"request_id": payload["id"], "response": "approve"}
        case "ToolCallRequest":
            return tool_answer(payload["id"])
        case "QuestionRequest":
            return {"request_id": payload["id"], "answers": {"Which?": "A"}}
        case _:
            return {"request_id": payload["id"], "action": "allow"}


@pytest.mark.spec("W-128")
def test_approval_requests_are_not_recorded_and_others_are(place: Place) -> None:
    questions = call("c3", "AskUserQuestion", {"questions": [QUESTION]})
    place.script(step(shell("c1", "true"), call("c2", "ext"), questions), "error: 429", "text: ok")
    with place.wire() as kimi:
        hooks = [{"id": "h", "event": "PreToolUse", "matcher": "Shell"}]
        kimi.initialize(external_tools=[tool("ext")], capabilities={"supports_question": True}, hooks=hooks)
        prompt = kimi.call("prompt", {"user_input": "go"})
        for _ in range(4):
            kimi.until_request()
            answer(kimi, kimi.lines[-1]["id"], result=answer_to(kimi.lines[-1]))
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        shown = [line["params"] for line in kimi.lines if "method" in line]
    unrecorded = ("ApprovalRequest", "ApprovalResponse", "HookRequest")
    assert set(unrecorded) <= {message["type"] for message in shown}
    assert messages(place) == [message for message in shown if message["type"] not in unrecorded]
    assert {"ToolCallRequest", "QuestionRequest", "HookTriggered", "HookResolved", "StepRetry"} <= set(types(place))


@pytest.mark.spec("W-131")
def test_torn_last_line_loses_only_itself(place: Place) -> None:
    place.script("text: one")
    with place.wire("--session", "s") as kimi:
        kimi.prompt("first")
    log = place.session_dirs()[0] / "wire.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    place.script("text: two")
    with place.wire("--session", "s") as kimi:
        assert kimi.prompt("second")["result"] == {"status": "finished"}
    raw = log.read_bytes().split(b"\n")
    assert raw[-1] == b""
    assert [b'"TurnBegin"' in line for line in raw].count(True) == 2
    assert b"second" in raw[-6]


MERGED = ("ContentPart", "ToolCallPart", "ToolCall")


@pytest.mark.spec("W-133")
@pytest.mark.parametrize("seen", range(1, 14, 3))
def test_events_sent_to_a_client_survive_a_kill(place: Place, seen: int) -> None:
    """Killed after `seen` events. A part that was still being merged may be missing, nothing else."""
    place.script(
        step("think: hm", "text: a", "text: b", shell("c1", "true"), "usage: output=1"),
        step("text: after", "text: wards", shell("c2", "sleep 30")),
    )
    with place.wire("--yolo") as kimi:
        kimi.call("prompt", {"user_input": "go"})
        for _ in range(seen):
            kimi.next_line()
        os.kill(kimi.process.pid, 9)
        kimi.wait()
    shown = [line["params"] for line in kimi.lines]
    settled = shown[: next((i + 1 for i in reversed(range(len(shown))) if shown[i]["type"] not in MERGED), 0)]
    kept = messages(place)
    whole = [message for message in settled if message["type"] not in MERGED]
    assert [message for message in kept if message["type"] not in MERGED][: len(whole)] == whole
    text = "".join(message["payload"].get("text", "") for message in settled if message["type"] == "ContentPart")
    kept_text = "".join(message["payload"].get("text", "") for message in kept if message["type"] == "ContentPart")
    assert kept_text.startswith(text)
    calls = [message["payload"]["id"] for message in settled if message["type"] == "ToolCall"]
    assert [message["payload"]["id"] for message in kept if message["type"] == "ToolCall"][: len(calls)] == calls
