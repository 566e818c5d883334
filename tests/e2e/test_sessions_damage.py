"""Damaged files cost what is damaged, nothing else (R-67)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place
from tests.support.providers.provider_server import text_reply
from tests.support.providers.strict import sent, strict_provider, text_of
from tests.support.stored_sessions import Json, event, write_session


def line(record: object) -> bytes:
    return json.dumps(record).encode() + b"\n"


DAMAGED_CONTEXT = (
    line({"role": "_system_prompt", "content": "be brief"})
    + line({"role": "user", "content": "first"})
    + b"this is not json\n"
    + b"\n"
    + line([1, 2])
    + line({"role": "developer", "content": "who is that?"})
    + line({"content": "nobody"})
    + line({"role": "assistant", "content": [{"type": "hologram"}]})
    + line({"role": "tool", "content": "an answer to nothing", "tool_call_id": "lost"})
    + b'{"role":"assistant","content":"bad \xff\xfe bytes"}\n'
    + line({"role": "user", "content": "half \ud83d a pair"})
    + b'{"role":"assistant","content":"torn in the mid'
)
UNREADABLE = 6

DAMAGED_EVENTS = (
    line({"type": "metadata", "protocol_version": "1.10"})
    + line(event("TurnBegin", {"user_input": "first"}))
    + b'{"timestamp": 1.0, "message": {"type": "TurnE\n'
    + b"\x00\x00\x00\n"
    + line({"timestamp": 2.0, "message": []})
    + line(event("OfTheFuture", {"x": 1}))
    + line(event("TurnEnd", {}))
    + b'{"timestamp": 3.0, "mess'
)


def warnings(place: Place, mentioned: Path | str) -> list[str]:
    """The warnings in the program's own log that speak of a file."""
    log = (place.share / "logs" / "kimi.log").read_text(encoding="utf-8").splitlines()
    return [one for one in log if "WARNING" in one and str(mentioned) in one]


@pytest.mark.spec("R-67")
@pytest.mark.parametrize("option", ["--continue", "--session"])
def test_damaged_session_resumes_with_readable_records(place: Place, option: str) -> None:
    directory = write_session(place, "hurt", context=DAMAGED_CONTEXT, events=DAMAGED_EVENTS)
    with strict_provider(text_reply("fine")) as server:
        place.provider(server.base_url)
        with place.wire(*([option] if option == "--continue" else [option, "hurt"])) as kimi:
            assert kimi.prompt("and now?")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
        texts = [text_of(message) for message in sent(server)]
    assert texts == ["first", "bad \ufffd\ufffd bytes", "half \ufffd a pair\nand now?"]
    assert len(warnings(place, directory / "context.jsonl")) == UNREADABLE
    stored = [json.loads(one) for one in (directory / "wire.jsonl").read_bytes().splitlines()[8:]]
    assert [one["message"]["type"] for one in stored] == [
        "TurnBegin",
        "StepBegin",
        "ContentPart",
        "StatusUpdate",
        "TurnEnd",
    ]


@pytest.mark.spec("R-67")
def test_damaged_log_replays_readable_records(place: Place) -> None:
    place.script("text: a")
    directory = write_session(place, "hurt", context=DAMAGED_CONTEXT, events=DAMAGED_EVENTS)
    with place.wire("--session", "hurt") as kimi:
        kimi.initialize()
        result: Json = kimi.response(kimi.call("replay"))["result"]
        assert (result["events"], result["requests"]) == (2, 0)
        assert kimi.types == ["TurnBegin", "TurnEnd"]
        assert kimi.finish() == 0
    assert len(warnings(place, directory / "wire.jsonl")) == 4
    assert len(warnings(place, "OfTheFuture")) == 1
