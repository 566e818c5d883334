"""`gemini` and `vertexai` against a recording server: what is sent, and what is made of what comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from google.auth.exceptions import TransportError

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings import ModelSettings
from kimi.domain.content import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    ChatProviderError,
    ConfigError,
    ModelError,
)
from kimi.domain.message import Function, Message, ToolCall, user_message
from kimi.domain.tool import ToolSpec
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.models.gemini import vertex_access
from kimi.infrastructure.models.http import HttpLayer, HttpLimits
from kimi.infrastructure.models.open import open_model
from kimi.infrastructure.models.vertex_access import Transport
from tests.dialects.gemini import DIALECT, call, event, quota
from tests.dialects.script import Answer
from tests.provider_server import Event, Json, ProviderServer, Recorded, Reply, dumps, provider

pytestmark = pytest.mark.anyio

HISTORY = [user_message("hello")]
SCHEMA = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": ["a"]}}}
TOOL = ToolSpec("Shell", "Runs a command.", SCHEMA)
PIXEL = "iVBORw0KGgo="
OK = DIALECT.reply(Answer(text="ok"))


class Client:
    """Models and the server that they talk to."""

    def __init__(self, server: ProviderServer, http: HttpLayer) -> None:
        self.server = server
        self.http = http
        self.root = server.base_url.removesuffix("/v1")

    def model(self, kind: str = "gemini", environ: dict[str, str] | None = None, **more: Any) -> ChatModel:
        given: dict[str, Any] = {"base_url": self.root, "api_key": "the-secret-key", "model": "gemini-2.5-pro", **more}
        settings = ModelSettings(provider_name="p", type=kind, **given)
        return open_model(settings, "session-1", self.http, lambda: "KimiCLI/2", environ or {})

    async def body(self, history: Sequence[Message] = HISTORY, **more: Any) -> Json:
        """The body of one request."""
        await ask(self.model(**more), history)
        return self.server.requests[-1].json


@asynccontextmanager
async def client(*replies: Reply) -> AsyncGenerator[Client]:
    async with provider(replies or [OK]) as server:
        http = HttpLayer({}, HttpLimits(read_s=5))
        try:
            yield Client(server, http)
        finally:
            await http.close()


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, tools: Sequence[ToolSpec] = (), system: str = ""
) -> list[ModelItem]:
    async with model.stream(system, history, tools, 0) as items:
        return [item async for item in items]


def reply(*events: Event) -> Reply:
    return Reply(events, done=False)


def called(call_id: str, name: str = "Shell", **more: Any) -> ToolCall:
    return ToolCall(call_id, Function(name, '{"x":"a"}'), more or None)


def result(call_id: str, *parts: ContentPart) -> Message:
    return Message("tool", parts, tool_call_id=call_id)


# --- the request ------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_the_request() -> None:
    async with client() as to:
        await ask(to.model(custom_headers={"X-Extra": "1"}), HISTORY, [TOOL], "Be kind.")
        (request,) = to.server.requests
    assert (request.method, request.path) == (
        "POST",
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
    )
    assert request.headers["x-goog-api-key"] == "the-secret-key"
    assert request.headers["user-agent"] == "KimiCLI/2"
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


async def test_what_is_not_there_is_left_out() -> None:
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
async def test_the_address(base: str, model: str, path: str) -> None:
    async with client() as to:
        await ask(to.model(base_url=to.root + base, model=model))
        assert to.server.requests[0].path == f"{path}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("model", ["a b", "../x", "x?key=1", "x#y", "x:generateContent"])
@pytest.mark.parametrize("kind", ["gemini", "vertexai"])
async def test_an_id_that_cannot_stand_in_a_url_is_refused(kind: str, model: str) -> None:
    async with client() as to:
        with pytest.raises(ConfigError, match="cannot be the id"):
            to.model(kind, model=model)


@pytest.mark.parametrize("kind", ["gemini", "vertexai"])
async def test_a_base_url_that_is_none_is_refused(kind: str) -> None:
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
async def test_thinking(model: str, thinking: bool | None, capable: bool, expected: Json | None) -> None:
    capabilities = frozenset({"thinking"} if capable else ())
    async with client() as to:
        body = await to.body(model=model, thinking=thinking, capabilities=capabilities)
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected


@pytest.mark.spec("R-77")
async def test_a_tool_exchange_is_sent_back_in_the_order_of_the_calls() -> None:
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


async def test_gemini_3_gets_a_stand_in_for_the_signature_of_a_foreign_call() -> None:
    calls = (called("call_1"), called("call_2"))
    history = [Message("assistant", (), calls), result("call_1"), result("call_2")]
    async with client() as to:
        parts = (await to.body(history, model="gemini-3-flash"))["contents"][0]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["skip_thought_signature_validator", None]


async def test_an_answer_with_nothing_left_to_say_is_left_out() -> None:
    history = [user_message("a"), Message("assistant", (ThinkPart("hm"),)), user_message(""), Message("system", ())]
    async with client() as to:
        contents = (await to.body(history))["contents"]
    assert [turn["role"] for turn in contents] == ["user", "user", "user"]
    assert all(part["text"] for turn in contents for part in turn["parts"])


async def test_a_system_message_in_the_history_is_told_apart() -> None:
    async with client() as to:
        contents = (await to.body([Message("system", (TextPart("be quick"),)), user_message("go")]))["contents"]
    assert contents[0] == {"role": "user", "parts": [{"text": "<system>be quick</system>"}]}


async def test_arguments_that_are_no_object_are_sent_as_an_empty_one() -> None:
    calls = tuple(ToolCall(str(at), Function("Shell", text)) for at, text in enumerate(("{broken", "[1]", "", None)))
    history = [Message("assistant", (), calls), *(result(one.id) for one in calls)]
    async with client() as to:
        parts = (await to.body(history))["contents"][0]["parts"]
    assert [part["functionCall"]["args"] for part in parts] == [{}] * 4


# --- media ------------------------------------------------------------------------------------------------------


def image(url: str) -> ImagePart:
    return ImagePart(image_url=MediaUrl(url))


async def test_media() -> None:
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
async def test_media_of_a_tool_result(model: str, inside: bool) -> None:
    medium = image(f"data:image/png;base64,{PIXEL}")
    history = [
        Message("assistant", (), (called("Shell_1", thought_signature_b64="c2ln"), called("Shell_2"))),
        result("Shell_1", TextPart("a cat"), medium),
        result("Shell_2", TextPart("nothing")),
    ]
    async with client() as to:
        body = await to.body(history, model=model, capabilities=frozenset({"image_in"}))
    parts = body["contents"][1]["parts"]
    blob = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    assert parts[0]["functionResponse"].get("parts") == ([blob] if inside else None)
    assert [list(part) for part in parts] == [["functionResponse"]] * 2 + ([] if inside else [["inlineData"]])


# --- the answer -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-77")
async def test_calls_get_ids_of_name_and_id_and_keep_their_signature() -> None:
    events = [
        event(call("c1", "Shell", '{"x":"ä"}', "c2ln")),
        event(call("c1", "Shell", "{}"), call("", "Shell", "{}"), finish="STOP"),
    ]
    async with client(reply(*events)) as to:
        *calls, end = await ask(to.model())
    assert calls[0] == ToolCall("Shell_c1", Function("Shell", '{"x":"ä"}'), {"thought_signature_b64": "c2ln"})
    assert all(isinstance(one, ToolCall) and one.id.startswith("Shell_own-") for one in calls[1:])
    assert len({one.id for one in calls if isinstance(one, ToolCall)}) == 3
    assert isinstance(end, ResponseEnd)
    assert end.stop_reason == "tool_calls"


async def test_what_is_given_out_can_be_sent_back() -> None:
    async with client(
        reply(event(call("c1", "Shell", "{}", "c2ln"), call("", "Shell", "{}"), finish="STOP")), OK
    ) as to:
        model = to.model(model="gemini-3-pro")
        calls = tuple(item for item in await ask(model) if isinstance(item, ToolCall))
        await ask(model, [*HISTORY, Message("assistant", (), calls), *(result(one.id) for one in calls)])
        parts = to.server.requests[-1].json["contents"][1]["parts"]
    assert parts == [
        {"functionCall": {"id": "c1", "name": "Shell", "args": {}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "Shell", "args": {}}},
    ]


@pytest.mark.spec("R-77")
async def test_thoughts_text_pictures_and_usage() -> None:
    usage = {"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}
    events = [
        event({"text": "hm", "thought": True}),
        event({"text": "see"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}),
        event({"text": "", "thoughtSignature": "c2ln"}, finish="MAX_TOKENS", usage=usage),
    ]
    async with client(reply(*events)) as to:
        items = await ask(to.model())
    assert items == [
        ThinkPart("hm"),
        TextPart("see"),
        image(f"data:image/png;base64,{PIXEL}"),
        ResponseEnd("answer-1", TokenUsage(6, 5, 4), "length"),
    ]


async def test_an_answer_without_content_says_why_it_stopped() -> None:
    async with client(reply(event(finish="MALFORMED_FUNCTION_CALL"))) as to:
        with pytest.raises(APIEmptyResponseError, match=r"\(it stopped with MALFORMED_FUNCTION_CALL\)\.$"):
            await ask(to.model())


async def test_a_blocked_prompt_is_a_final_error() -> None:
    async with client(reply({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}})) as to:
        with pytest.raises(ChatProviderError, match=r"refused the prompt \(SAFETY\)") as raised:
            await ask(to.model())
    assert not raised.value.transient


@pytest.mark.parametrize(
    ("quota_id", "transient"), [("GenerateRequestsPerMinute", True), ("GenerateRequestsPerDayPerProject", False)]
)
async def test_a_quota_says_when_to_try_again(quota_id: str, transient: bool) -> None:
    async with client(Reply(status=429, body=dumps(quota(quota_id, "34.5s")))) as to:
        with pytest.raises(APIStatusError) as raised:
            await ask(to.model())
    assert raised.value.transient is transient
    assert raised.value.retry_after == 34.5


async def test_a_list_of_errors_is_understood() -> None:
    body = dumps([{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}])
    async with client(Reply(status=400, body=body)) as to:
        with pytest.raises(APIStatusError, match=r"HTTP 400: API key not valid\.$"):
            await ask(to.model())


# --- Vertex AI --------------------------------------------------------------------------------------------------


def service_account(directory: Path, root: str, name: str = "account.json", **more: str | None) -> Path:
    """A file of credentials whose tokens come from the server at `root`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / name
    account = {
        "type": "service_account",
        "project_id": "file-project",
        "private_key_id": "k",
        "private_key": key.decode(),
        "client_email": "robot@file-project.iam.example",
        "token_uri": f"{root}/token",
        **more,
    }
    path.write_text(json.dumps(account))
    return path


def with_tokens(*lives: int) -> Any:
    """Answers requests for tokens with tokens that live that many seconds."""
    left = list(lives)

    def choose(request: Recorded) -> Reply:
        if request.path != "/token":
            return OK
        body = {"access_token": f"token-{len(left)}", "expires_in": left.pop(0), "token_type": "Bearer"}
        return Reply(body=dumps(body))

    return choose


async def test_vertex_in_express_mode() -> None:
    async with client() as to:
        await ask(to.model("vertexai"), HISTORY, [TOOL])
        (request,) = to.server.requests
    assert request.path == "/v1beta1/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "the-secret-key"


@pytest.mark.spec("R-77")
async def test_vertex_with_a_service_account_of_the_providers_env(tmp_path: Path) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        variables = {
            "GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root)),
            "GOOGLE_CLOUD_PROJECT": "my-project",
            "GOOGLE_CLOUD_LOCATION": "europe-west4",
        }
        model = to.model("vertexai", api_key="", env=variables)
        await ask(model)
        await ask(model)
        token, *requests = to.server.requests
    assert token.path == "/token"
    path = "/v1beta1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-pro"
    assert [request.path for request in requests] == [f"{path}:streamGenerateContent?alt=sse"] * 2
    assert {request.headers["authorization"] for request in requests} == {"Bearer token-1"}
    assert not any("x-goog-api-key" in request.headers for request in requests)


async def test_a_token_is_renewed_before_it_expires_and_the_project_may_come_from_the_file(tmp_path: Path) -> None:
    async with client() as to:
        to.server.choose = with_tokens(60, 3600)
        environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root))}
        model = to.model("vertexai", environ, api_key="", model="anthropic/claude-x")
        for _ in range(3):
            await ask(model)
        requests = [request for request in to.server.requests if request.path != "/token"]
    assert [request.headers["authorization"] for request in requests] == ["Bearer token-2", *["Bearer token-1"] * 2]
    assert requests[0].path.startswith("/v1beta1/projects/file-project/locations/global/publishers/anthropic/models/")


def test_without_the_extra_vertex_is_refused_at_the_start_with_its_name_and_express_mode_works() -> None:
    code = """
import sys
sys.modules["google"] = None
from kimi.application.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.models.http import HttpLayer
from kimi.infrastructure.models.open import model_opener
settings = ModelSettings(provider_name="p", type="vertexai", model="m", base_url="https://aiplatform.googleapis.com")
model_opener(settings.model_copy(update={"api_key": "k"}), HttpLayer({}), "2", {})
try:
    model_opener(settings, HttpLayer({}), "2", {})
except ConfigError as error:
    assert "kimi-wire[vertex]" in str(error)
else:
    raise AssertionError("not refused")
"""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize(
    ("location", "host"),
    [("", "aiplatform.googleapis.com"), ("us-central1", "us-central1-aiplatform.googleapis.com")],
)
async def test_a_place_of_google_has_a_host_of_its_own(tmp_path: Path, location: str, host: str) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        environ = {"GOOGLE_CLOUD_LOCATION": location, "GOOGLE_CLOUD_PROJECT": "p"}
        environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(service_account(tmp_path, to.root))
        base = "https://aiplatform.googleapis.com"
        settings = ModelSettings(provider_name="p", type="vertexai", model="m", base_url=base)
        address = await vertex_access(settings, to.http, environ)()
    place = location or "global"
    assert address.url.startswith(f"https://{host}/v1beta1/projects/p/locations/{place}/publishers/google/models/m:")


async def test_the_credentials_of_this_machine_are_used_when_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        service_account(tmp_path, to.root, "application_default_credentials.json")
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
            monkeypatch.delenv(name, raising=False)
        await ask(to.model("vertexai", api_key=""))
        request = to.server.requests[-1]
    assert request.headers["authorization"] == "Bearer token-1"
    assert request.path.startswith("/v1beta1/projects/file-project/locations/global/")


async def test_a_project_that_nobody_names_is_asked_for(tmp_path: Path) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root, project_id=None))}
        with pytest.raises(ChatProviderError, match="set GOOGLE_CLOUD_PROJECT in the env of provider 'p'"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_credentials_that_are_refused(tmp_path: Path) -> None:
    async with client(Reply(status=400, body=b'{"error":"invalid_grant","error_description":"Who are you?"}')) as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root))}
        with pytest.raises(ChatProviderError, match=r"No access token for Google Cloud: .*invalid_grant") as raised:
            await ask(to.model("vertexai", api_key="", env=variables))
    assert not raised.value.transient


async def test_tokens_that_cannot_be_fetched(tmp_path: Path) -> None:
    async with client() as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, "http://127.0.0.1:1"))}
        with pytest.raises(APIConnectionError, match="No access token for Google Cloud"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_a_time_limit_of_the_library_is_kept() -> None:
    async with client(Reply(fault="mute")) as to:
        with pytest.raises(TransportError, match=r"no answer within 0\.2 seconds"), anyio.fail_after(4):
            await anyio.to_thread.run_sync(lambda: Transport(to.http)(to.root, timeout=0.2))


async def test_a_proxy_that_cannot_be_used_is_told_before_a_token_is_asked_for(tmp_path: Path) -> None:
    http = HttpLayer({"HTTP_PROXY": "ftp://proxy"})
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, "http://127.0.0.1:1"))}
    settings = ModelSettings(provider_name="p", type="vertexai", model="m", base_url="http://x", env=variables)
    with pytest.raises(ChatProviderError, match=r"^The proxy in the environment"):
        await ask(open_model(settings, "s", http, lambda: "", {}))


ODD_EXPIRY = '{"type":"authorized_user","client_id":"a","client_secret":"b","refresh_token":"c","expiry":5}'


@pytest.mark.parametrize("content", [None, "{not json", "{}", ODD_EXPIRY])
async def test_credentials_that_cannot_be_read(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "account.json"
    if content is not None:
        path.write_text(content)
    async with client() as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(path), "GOOGLE_CLOUD_PROJECT": "p"}
        with pytest.raises(ModelError, match="Google Cloud"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_waiting_for_a_token_can_be_cancelled_and_is_taken_up_again(tmp_path: Path) -> None:
    async with client() as to:
        tokens = with_tokens(3600)
        mute = [Reply(fault="mute")]

        def choose(request: Recorded) -> Reply:
            return mute.pop() if mute and request.path == "/token" else tokens(request)

        to.server.choose = choose
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root))}
        model = to.model("vertexai", api_key="", env=variables)
        with anyio.move_on_after(0.3) as scope:
            await ask(model)
        assert scope.cancelled_caught
        assert to.server.asked.is_set()
        with anyio.fail_after(5):
            await ask(model)
