"""A session of the real process, recorded from a provider and played back without one."""

from __future__ import annotations

import pytest

from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import call_reply, error_reply, text_reply


def session(place: Place) -> list[Json]:
    """Two turns; what the client sees of them."""
    with place.wire("--yolo") as kimi:
        kimi.prompt("make a list")
        kimi.prompt("thanks")
        assert kimi.finish() == 0
        return seen(kimi)


def seen(kimi: WireProcess) -> list[Json]:
    """Without how long a retry waited, which is up to chance."""
    names = ("ContentPart", "ToolCall", "ToolCallPart", "ToolResult", "StepRetry", "TurnEnd")
    return [{**payload, "wait_s": None} for name in names for payload in kimi.payloads(name)]


def test_a_recorded_session_plays_without_a_provider(place: Place) -> None:
    cassette = place.root / "session.jsonl"
    calls = call_reply(("c1", "SetTodoList", '{"todos":[{"title":"look","status":"done"}]}'), text="one moment")
    with loopback(error_reply(503, "busy"), calls, text_reply("done", " now"), text_reply("you are welcome")) as server:
        place.environ["KIMI_RECORD"] = str(cassette)
        recorded = session(place.provider(server.base_url, "kimi"))
    del place.environ["KIMI_RECORD"]
    place.write_config("_replay", env={"KIMI_REPLAY": str(cassette)})
    assert session(place) == recorded
    assert any("you are welcome" in str(payload) for payload in recorded)
    assert "sk-test-secret" not in cassette.read_text("utf-8")


def test_request_that_differs_from_cassette_is_an_error(place: Place) -> None:
    cassette = place.root / "session.jsonl"
    with loopback(text_reply("hello")) as server:
        place.environ["KIMI_RECORD"] = str(cassette)
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.prompt("hello")
    del place.environ["KIMI_RECORD"]
    place.write_config("_replay", env={"KIMI_REPLAY": str(cassette)})
    with place.wire() as kimi:
        error = kimi.prompt("good night")["error"]
    assert error["code"] == -32003
    assert "does not match at call 1" in error["message"]


@pytest.mark.parametrize("env", [{}, {"KIMI_REPLAY": "missing.jsonl"}])
def test_missing_cassette_ends_the_start(place: Place, env: dict[str, str]) -> None:
    place.write_config("_replay", env=env)
    done = place.run("--wire")
    assert done.returncode == 1
    assert (b"missing.jsonl cannot be read" if env else b"KIMI_REPLAY is required") in done.stderr
