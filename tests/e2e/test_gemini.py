"""Gemini behind the real process: what the provider wants back survives the end of the process."""

from __future__ import annotations

from tests.support.dialects.gemini import DIALECT, call, event
from tests.support.dialects.script import Answer
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply

ARGUMENTS = '{"todos":[{"title":"look","status":"done"}]}'


def called(request: Json) -> list[Json]:
    """The parts with calls in a request."""
    return [part for turn in request["contents"] for part in turn["parts"] if "functionCall" in part]


def test_signatures_are_sent_back_even_after_reopening(place: Place) -> None:
    calls = Reply([event(call("c1", "SetTodoList", ARGUMENTS, "c2lnbmVk"), finish="STOP")], done=False)
    answers = [calls, DIALECT.reply(Answer(text="done")), DIALECT.reply(Answer(text="still done"))]
    with loopback(*answers) as server:
        place.provider(server.base_url, "google_genai")
        with place.wire("--yolo") as kimi:
            assert kimi.prompt("make a list")["result"] == {"status": "finished"}
            assert kimi.payloads("ToolCall")[0]["extras"] == {"thought_signature_b64": "c2lnbmVk"}
            assert kimi.finish() == 0
        with place.wire("--yolo", "--session", place.session_dirs()[-1].name) as kimi:
            assert kimi.prompt("sure?")["result"] == {"status": "finished"}
        for request in server.requests:
            assert request.path.startswith("/v1/models/test-model:streamGenerateContent")
        sent = [called(request.json) for request in server.requests]
    arguments = {"todos": [{"title": "look", "status": "done"}]}
    function = {"id": "c1", "name": "SetTodoList", "args": arguments}
    expected = {"functionCall": function, "thoughtSignature": "c2lnbmVk"}
    assert sent == [[], [expected], [expected]]


def test_vertex_without_credentials_ends_the_turn_with_a_sentence(place: Place) -> None:
    place.write_config(
        "vertexai",
        base_url="http://127.0.0.1:1",
        env={"GOOGLE_APPLICATION_CREDENTIALS": str(place.root / "none.json"), "GOOGLE_CLOUD_PROJECT": "p"},
    )
    config = place.share / "config.toml"
    config.write_text(config.read_text().replace('"sk-test-secret"', '""'))
    with place.wire() as kimi:
        error = kimi.prompt("hello")["error"]
    assert error["code"] == -32003
    assert "The credentials for Google Cloud cannot be read" in error["message"]
