"""`gemini` against a recording server: the address, the body, and the media in it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import AudioPart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.errors import ChatProviderError, ConfigError
from tests.support.providers.gemini_client import HISTORY, OK, PIXEL, SCHEMA, TOOL, ask, client, image, result
from tests.support.providers.provider_server import Json, Recorded, Reply

pytestmark = pytest.mark.anyio


def called(call_id: str, name: str = "Shell", **more: Any) -> ToolCall:
    return ToolCall(call_id, Function(name, '{"x":"a"}'), more or None)


# --- the request ------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_request_has_the_documented_form() -> None:
    async with client() as to:
        await ask(to.model(custom_headers={"X-Extra": "1"}), HISTORY, [TOOL], "Be kind.")
        (request,) = to.server.requests
    assert (request.method, request.path) == (
        "POST",
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
    )
    assert request.headers["x-goog-api-key"] == "the-secret-key"
    assert request.headers["user-agent"] == "kimi-wire/2"
    assert request.headers["x-extra"] == "1"
    assert "authorization" not in request.headers
    assert request.json == {
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "Shell", "description": TOOL.description, "parametersJsonSchema": SCHEMA}
                ]
            }
        ],
    }


async def test_unset_fields_are_omitted() -> None:
    async with client() as to:
        assert await to.body() == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}


@pytest.mark.parametrize(
    ("base", "model", "path"),
    [
        ("", "gemini-x", "/v1beta/models/gemini-x"),
        ("/", "models/gemini-x", "/v1beta/models/gemini-x"),
        ("/v1alpha", "tunedModels/mine-1", "/v1alpha/tunedModels/mine-1"),
        ("/proxy/v1beta/", "gemini-x", "/proxy/v1beta/models/gemini-x"),
    ],
)
async def test_url_is_built_from_base_and_model(base: str, model: str, path: str) -> None:
    async with client() as to:
        await ask(to.model(base_url=to.root + base, model=model))
        assert to.server.requests[0].path == f"{path}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("model", ["a b", "../x", "x?key=1", "x#y", "x:generateContent"])
@pytest.mark.parametrize("kind", ["gemini", "vertexai"])
async def test_model_id_unusable_in_a_url_is_refused(kind: str, model: str) -> None:
    async with client() as to:
        with pytest.raises(ConfigError, match="cannot be the id"):
            to.model(kind, model=model)


@pytest.mark.parametrize("kind", ["gemini", "vertexai"])
async def test_invalid_base_url_is_refused(kind: str) -> None:
    async with client() as to:
        with pytest.raises(ConfigError, match="cannot be used as an address"):
            to.model(kind, base_url="http://[::1")


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    ("model", "thinking", "capable", "expected"),
    [
        ("gemini-4-any", True, True, {"includeThoughts": True, "thinkingBudget": 32_000}),
        ("gemini-4-any", False, True, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-pro", True, True, {"includeThoughts": True, "thinkingBudget": 32_000}),
        ("gemini-2.5-pro", False, True, {"includeThoughts": False, "thinkingBudget": 128}),
        ("gemini-2.5-flash", True, True, {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash", False, False, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-3-pro-preview", True, True, {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-3-pro-preview", False, True, {"includeThoughts": False, "thinkingLevel": "low"}),
        ("gemini-2.0-flash", None, False, None),
        ("gemini-2.0-flash", True, False, None),
    ],
)
async def test_thinking_configuration_depends_on_the_model(
    model: str, thinking: bool | None, capable: bool, expected: Json | None
) -> None:
    capabilities = frozenset({"thinking"} if capable else ())
    async with client() as to:
        body = await to.body(model=model, thinking=thinking, capabilities=capabilities)
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected


@pytest.mark.spec("R-77")
async def test_tool_results_are_sent_back_in_call_order() -> None:
    calls = (
        called("Shell_c1", thought_signature_b64="c2ln"),
        called("Read_own-2", "Read"),
        called("call_of_another_provider"),
    )
    history = [
        user_message("do it"),
        Message("assistant", (ThinkPart("hm"), TextPart("yes")), calls),
        result("call_of_another_provider", TextPart("three")),
        result("Shell_c1", TextPart("one"), TextPart("and more")),
        result("Read_own-2"),
        user_message("go on"),
    ]
    async with client() as to:
        body = await to.body(history)
    arguments = {"args": {"x": "a"}}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "do it"}]},
        {
            "role": "model",
            "parts": [
                {"text": "yes"},
                {"functionCall": {"id": "c1", "name": "Shell", **arguments}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "Read", **arguments}},
                {"functionCall": {"name": "Shell", **arguments}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "Shell", "response": {"output": "one\nand more"}}},
                {"functionResponse": {"name": "Read", "response": {"output": ""}}},
                {"functionResponse": {"name": "Shell", "response": {"output": "three"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "go on"}]},
    ]


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    "history",
    [
        [Message("assistant", (), (called("a"), called("b"))), result("a")],
        [Message("assistant", (), (called("a"),)), result("a"), result("b")],
        [Message("assistant", (), (called("a"),)), result("a"), result("a")],
        [Message("assistant", (), (called("a"),)), user_message("and?")],
        [Message("assistant", (TextPart("yes"),)), result("a")],
        [result("a")],
    ],
    ids=["missing", "extra", "twice", "none", "no call", "alone"],
)
async def test_results_that_do_not_fit_their_calls_are_an_error(history: list[Message]) -> None:
    """However often it is asked, and whatever came before."""
    async with client() as to:
        model = to.model()
        for before in ([], [user_message("so")]):
            for _ in range(2):
                with pytest.raises(ChatProviderError, match="tool result"):
                    await ask(model, [*before, *history])
        assert not to.server.requests


async def test_gemini_3_gets_placeholder_signature_for_calls_of_other_providers() -> None:
    calls = (called("call_1"), called("call_2"))
    history = [*HISTORY, Message("assistant", (), calls), result("call_1"), result("call_2")]
    async with client() as to:
        parts = (await to.body(history, model="gemini-3-flash"))["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["skip_thought_signature_validator", None]


async def test_empty_message_is_sent_with_placeholder_text() -> None:
    history = [user_message("a"), Message("assistant", (ThinkPart("hm"),)), user_message(""), Message("system", ())]
    async with client() as to:
        contents = (await to.body(history))["contents"]
    assert [turn["role"] for turn in contents] == ["user", "model", "user", "user"]
    assert all(part["text"] for turn in contents for part in turn["parts"])


async def test_system_message_in_the_history_is_tagged() -> None:
    async with client() as to:
        contents = (await to.body([Message("system", (TextPart("be quick"),)), user_message("go")]))["contents"]
    assert contents[0] == {"role": "user", "parts": [{"text": "<system>be quick</system>"}]}


async def test_arguments_that_are_no_object_are_sent_as_an_empty_one() -> None:
    calls = tuple(ToolCall(str(at), Function("Shell", text)) for at, text in enumerate(("{broken", "[1]", "", None)))
    history = [*HISTORY, Message("assistant", (), calls), *(result(one.id) for one in calls)]
    async with client() as to:
        parts = (await to.body(history))["contents"][1]["parts"]
    assert [part["functionCall"]["args"] for part in parts] == [{}] * 4


# --- media ------------------------------------------------------------------------------------------------------


async def test_media_are_sent_inline_or_by_uri() -> None:
    parts = (
        image(f"data:image/png;base64,{PIXEL}"),
        image("data:image/svg+xml,%3Csvg/%3E"),
        AudioPart(audio_url=MediaUrl(f"data:audio/mp3;base64,{PIXEL}")),
        VideoPart(video_url=MediaUrl("gs://bucket/film.mp4")),
        image("ms://file-1"),
    )
    async with client() as to:
        body = await to.body([Message("user", parts)], capabilities=frozenset({"image_in", "video_in"}))
    assert body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"inlineData": {"mimeType": "image/svg+xml", "data": b64encode(b"<svg/>").decode()}},
        {"inlineData": {"mimeType": "audio/mp3", "data": PIXEL}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/film.mp4"}},
        {"text": "[image omitted: only data:, http(s): and gs: addresses can be used]"},
    ]


async def test_media_that_the_model_cannot_read_become_text_and_are_not_fetched() -> None:
    async with client() as to:
        body = await to.body([Message("user", (image(to.root + "/cat.png"),))])
        assert len(to.server.requests) == 1
    assert "omitted" in body["contents"][0]["parts"][0]["text"]


async def test_media_from_the_web_are_fetched_once_with_redirects_followed() -> None:
    async with client() as to:

        def choose(request: Recorded) -> Reply:
            if request.path == "/cat":
                return Reply(status=302, body=b"", headers={"Location": "/cat.png"})
            if request.path == "/cat.png":
                return Reply(body=b"\x89PNG", headers={"Content-Type": "image/png"})
            return OK

        to.server.choose = choose
        model = to.model(capabilities=frozenset({"image_in"}))
        history = [Message("user", (image(to.root + "/cat"),))]
        await ask(model, history)
        await ask(model, [*history, Message("assistant", (TextPart("a cat"),)), user_message("sure?")])
        paths = [request.path for request in to.server.requests]
        contents = to.server.requests[-1].json["contents"]
    assert [path for path in paths if "cat" in path] == ["/cat", "/cat.png"]
    assert contents[0]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": b64encode(b"\x89PNG").decode()}}]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Reply(status=404, body=b""), "its address answered with HTTP 404"),
        (Reply(body=b"<html>", headers={"Content-Type": "text/html; charset=utf-8"}), "its address holds text/html"),
        (Reply(status=302, body=b"", headers={"Location": "/cat"}), "its address leads in circles"),
        (
            Reply(status=302, body=b"", headers={"Location": "http://[::1"}),
            "its address cannot be fetched: Invalid IPv6 URL",
        ),
        (Reply(fault="refuse"), "its address cannot be fetched: the server closed the connection"),
        (
            Reply(body=b"x" * ((15 << 20) + 1), headers={"Content-Type": "image/png"}),
            "it has more than 15 MB",
        ),
    ],
)
async def test_media_that_cannot_be_fetched_become_text(answer: Reply, text: str) -> None:
    async with client() as to:
        to.server.choose = lambda request: answer if request.method == "GET" else OK
        body = await to.body([Message("user", (image(to.root + "/cat"),))], capabilities=frozenset({"image_in"}))
    assert body["contents"][0]["parts"] == [{"text": f"[image omitted: {text}]"}]


@pytest.mark.parametrize(("model", "inside"), [("gemini-2.5-pro", False), ("gemini-3-pro", True)])
async def test_media_of_a_tool_result_are_sent(model: str, inside: bool) -> None:
    medium = image(f"data:image/png;base64,{PIXEL}")
    history = [
        *HISTORY,
        Message("assistant", (), (called("Shell_1", thought_signature_b64="c2ln"), called("Shell_2"))),
        result("Shell_1", TextPart("a cat"), medium),
        result("Shell_2", TextPart("nothing")),
    ]
    async with client() as to:
        body = await to.body(history, model=model, capabilities=frozenset({"image_in"}))
    parts = body["contents"][2]["parts"]
    blob = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    assert parts[0]["functionResponse"].get("parts") == ([blob] if inside else None)
    assert [list(part) for part in parts] == [["functionResponse"]] * 2 + ([] if inside else [["inlineData"]])
