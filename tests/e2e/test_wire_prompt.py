"""`prompt`: what it accepts, what it answers in every outcome (wire spec 3.2, 7)."""

from __future__ import annotations

import resource
from collections.abc import Generator

import pytest

from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, error_reply, text_events, text_reply
from tests.support.providers.scripts import UNTIL_GO, call, error_of, shell, step, tool

REFUSED = (-32602, "Invalid parameters for method `prompt`")
BUSY = (-32000, "An agent turn is already in progress")
TEXT_TURN = ["TurnBegin", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]
FAILED_TURN = ["TurnBegin", "StepBegin", "StepInterrupted", "TurnEnd"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[WireProcess, None, None]:
    """One process for all tests that leave it idle."""
    place = Place(tmp_path_factory.mktemp("prompt"), capabilities=("image_in",)).script(*["text: ok"] * 100)
    with place.wire() as kimi:
        kimi.initialize()
        yield kimi


def turn(kimi: WireProcess, user_input: object) -> tuple[Json, list[str]]:
    """Run a turn; its response and the types of its events."""
    before = len(kimi.lines)
    response = kimi.prompt(user_input)
    return response, [line["params"]["type"] for line in kimi.lines[before:] if "method" in line]


def image(**members: object) -> Json:
    """An image part."""
    return {"type": "image_url", "image_url": members}


@pytest.mark.spec("W-58", "W-59")
def test_the_input_is_echoed(served: WireProcess) -> None:
    url = "https://example.test/a.png"
    text = {"type": "text", "text": "two\nlines"}
    inputs: list[tuple[object, object]] = [
        ("  two\nlines\r\n\ttab ", "  two\nlines\r\n\ttab "),
        ("", ""),
        ("  \n ", "  \n "),
        ([], []),
        ([text], [text]),
        ([image(url=url), text], [image(url=url, id=None), text]),
        ([image(url=url, id="i1")], [image(url=url, id="i1")]),
    ]
    for given, expected in inputs:
        response, types = turn(served, given)
        assert response["result"] == {"status": "finished"}
        assert types == TEXT_TURN
        assert served.payloads("TurnBegin")[-1] == {"user_input": expected}


WRONG: list[object] = [
    None, 5, 1.5, True, {}, {"type": "text", "text": "x"}, ["x"], [None], [1], [[]],
    [{"text": "x"}], [{"type": 1, "text": "x"}], [{"type": "text"}], [{"type": "text", "text": 1}],
    [{"type": "text", "text": None}], [{"type": "think"}], [{"type": "think", "think": "x", "encrypted": 1}],
    [{"type": "image_url"}], [{"type": "image_url", "image_url": "u"}], [{"type": "image_url", "image_url": {}}],
    [{"type": "image_url", "image_url": {"url": 1}}], [{"type": "image_url", "image_url": {"url": "u", "id": 1}}],
    [{"type": "audio_url", "image_url": {"url": "u"}}], [{"type": "video_url"}], [{"type": "nope", "text": "x"}],
    [{"type": "ContentPart", "text": "x"}], [{"type": "text", "text": "good"}, {"type": "nope"}],
]  # fmt: skip


@pytest.mark.spec("W-60")
def test_wrong_input_is_refused_and_the_process_lives(served: WireProcess) -> None:
    before = served.types.count("TurnBegin")
    for wrong in WRONG:
        assert error_of(served.prompt(wrong)) == REFUSED, wrong
    assert error_of(served.response(served.call("prompt", {}))) == REFUSED
    assert error_of(served.response(served.call("prompt"))) == REFUSED
    for params in ([], "x", 1, None, True, ["hi"]):
        served.send({"id": "w", "method": "prompt", "params": params})
        assert error_of(served.response("w")) == REFUSED
    assert served.types.count("TurnBegin") == before
    assert turn(served, "good")[0]["result"] == {"status": "finished"}


@pytest.mark.spec("W-67", "W-71")
def test_the_next_prompt_may_follow_the_response_at_once_under_the_same_id(served: WireProcess) -> None:
    for _ in range(25):
        served.send({"id": "same", "method": "prompt", "params": {"user_input": "hi"}})
        assert served.response("same")["result"] == {"status": "finished"}


@pytest.mark.spec("W-66", "R-240")
def test_prompt_during_turn_is_refused(place: Place) -> None:
    place.script(step("text: one", shell("c1", UNTIL_GO)), "text: two")
    with place.wire("--yolo") as kimi:
        first = kimi.call("prompt", {"user_input": "first"})
        kimi.until("ToolCall")
        second = kimi.call("prompt", {"user_input": "second"})
        assert error_of(kimi.response(second)) == BUSY
        kimi.send({"id": first, "method": "prompt", "params": {"user_input": "the id is in flight"}})
        assert error_of(kimi.response(first)) == (-32600, "Another request with this id is in progress")
        assert error_of(kimi.response(kimi.call("prompt", {"user_input": 5}))) == REFUSED
        (place.work / "go").touch()
        assert kimi.response(first)["result"] == {"status": "finished"}
        assert kimi.payloads("TurnBegin") == [{"user_input": "first"}]
        assert kimi.text == "onetwo"
        assert kimi.quiet()


@pytest.mark.spec("W-57", "W-68", "R-94", "R-80")
def test_prompt_returns_documented_status_and_stops_at_step_limit(place: Place) -> None:
    place.config = "[loop_control]\nmax_steps_per_turn = 2\n"
    place.script(call("c1", "Nope", {"n": 1}), call("c2", "Nope", {"n": 2}), "text: ok", call("c3", "ext"))
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        response, types = turn(kimi, "limit")
        assert response["result"] == {"status": "max_steps_reached", "steps": 2}
        one_step = ["StepBegin", "ToolCall", "StatusUpdate", "ToolResult"]
        assert types == ["TurnBegin", *one_step, *one_step, "TurnEnd"]
        assert [item["n"] for item in kimi.payloads("StepBegin")] == [1, 2]
        assert turn(kimi, "ok")[0]["result"] == {"status": "finished"}
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ToolCallRequest")
        kimi.call("cancel")
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}


@pytest.mark.spec("W-61", "R-80")
def test_prompt_without_model_is_an_error(place: Place) -> None:
    (place.share / "config.toml").write_text("", encoding="utf-8")
    with place.wire() as kimi:
        kimi.initialize()
        for _ in range(2):
            response, types = turn(kimi, "hi")
            assert error_of(response) == (-32001, "LLM is not set")
            assert types == ["TurnBegin", "TurnEnd"]
        response, types = turn(kimi, "/clear")
        assert response["result"] == {"status": "finished"}


@pytest.mark.spec("W-62", "R-80")
def test_unsupported_content_is_refused(place: Place) -> None:
    place.script("text: ok")
    picture = image(url="data:image/png;base64,AA==")
    video = {"type": "video_url", "video_url": {"url": "https://example.test/v.mp4"}}
    with place.wire() as kimi:
        kimi.initialize()
        response, types = turn(kimi, [picture, {"type": "text", "text": "what is this?"}])
        text = "LLM model 'scripted_echo' does not support required capability: image_in."
        assert error_of(response) == (-32002, text)
        assert types == ["TurnBegin", "TurnEnd"]
        response, types = turn(kimi, [video, picture])
        text = "LLM model 'scripted_echo' does not support required capabilities: image_in, video_in."
        assert error_of(response) == (-32002, text)
        assert turn(kimi, "text")[0]["result"] == {"status": "finished"}


@pytest.mark.spec("W-63", "R-80")
def test_provider_errors_are_returned(place: Place) -> None:
    statuses = (400, 401, 403, 404, 422)
    replies = [error_reply(status, f"text of the provider {status}") for status in statuses]
    with loopback(*replies, text_reply("fine")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize()
            for status in statuses:
                response, types = turn(kimi, "hi")
                code, message = error_of(response)
                assert code == -32003
                assert f"text of the provider {status}" in message
                assert types == FAILED_TURN
            assert turn(kimi, "hi")[0]["result"] == {"status": "finished"}
        assert len(server.requests) == len(statuses) + 1


def test_broken_stream_is_retried_and_fails_with_its_parts(place: Place) -> None:
    place.config = "[loop_control]\nmax_retries_per_step = 1\n"
    with loopback(Reply(text_events("half"), fault="close", fault_after=1)) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize()
            response, types = turn(kimi, "hi")
            assert error_of(response)[0] == -32003
            assert types == ["TurnBegin", "StepBegin", "ContentPart", "StepInterrupted", "TurnEnd"]


@pytest.mark.spec("W-64", "R-80")
def test_expired_login_is_reported(place: Place) -> None:
    place.config = '[providers.p.oauth]\nstorage = "file"\nkey = "oauth/kimi-code"\n'
    with loopback(error_reply(401, "token expired")) as server:
        place.provider(server.base_url, "kimi")
        with place.wire() as kimi:
            kimi.initialize()
            response, types = turn(kimi, "hi")
            text = 'Authentication failed. Your login session may have expired. Please run "/login" to sign in again.'
            assert error_of(response) == (-32004, text)
            assert types == FAILED_TURN


@pytest.mark.spec("W-65", "R-80")
def test_an_unexpected_failure_is_named_and_the_next_prompt_works(place: Place) -> None:
    """The files of the session must not grow for a while, as on a full disk."""
    place.script("text: one", "text: two", "text: three")
    with place.wire() as kimi:
        kimi.initialize()
        assert turn(kimi, "one")[0]["result"] == {"status": "finished"}
        size = (place.session_dirs()[0] / "wire.jsonl").stat().st_size
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(kimi.process.pid, resource.RLIMIT_FSIZE, (min(size, 700), resource.RLIM_INFINITY))
        code, message = error_of(kimi.prompt("x" * 1000))
        assert code == -32603
        name, _, text = message.partition(": ")
        assert name == "StoreFailed"
        assert text
        resource.prlimit(kimi.process.pid, resource.RLIMIT_FSIZE, unlimited)
        assert turn(kimi, "again")[0]["result"] == {"status": "finished"}


@pytest.mark.spec("W-69")
def test_slash_input_is_a_command_or_text(place: Place) -> None:
    place.script(*["text: answer"] * 10)
    with place.wire() as kimi:
        kimi.initialize()
        for command, said in (
            ("/nope", 'Unknown slash command "/nope".'),
            ("  /nope:a:b and more", 'Unknown slash command "/nope:a:b".'),
            (" /yolo", "You only live once! All actions will be auto-approved."),
            ([{"type": "text", "text": "/yolo"}, {"type": "text", "text": "off"}],
             "You only die once! Actions will require approval."),
        ):  # fmt: skip
            response, types = turn(kimi, command)
            assert response["result"] == {"status": "finished"}
            assert types == ["TurnBegin", "ContentPart", "TurnEnd"]
            assert kimi.payloads("ContentPart")[-1] == {"type": "text", "text": said}
            assert kimi.payloads("TurnBegin")[-1] == {"user_input": command}
        for plain in ("/ x", "//x", "x /yolo", "/", "/nope!", "/näme"):
            response, types = turn(kimi, plain)
            assert types == TEXT_TURN, plain


def test_clear_reports_the_new_token_counts(place: Place) -> None:
    place.script("text: ok")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("hi")
        for command in ("/clear", "/reset"):
            _, types = turn(kimi, command)
            assert types == ["TurnBegin", "ContentPart", "StatusUpdate", "TurnEnd"]
            assert kimi.payloads("ContentPart")[-1]["text"] == "The context has been cleared."
            figures = {name: value for name, value in kimi.payloads("StatusUpdate")[-1].items() if value is not None}
            assert figures == {"context_usage": 0.0, "context_tokens": 0, "max_context_tokens": 100_000}
