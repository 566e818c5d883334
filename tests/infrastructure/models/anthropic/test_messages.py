"""`anthropic`: how a history becomes the messages of a request (runtime spec 3.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.anthropic.body import build_message, make_unit_rules
from kimi.infrastructure.models.anthropic.messages import AnthropicModel
from kimi.infrastructure.models.history.encoded_history import EncodedHistoryCache
from kimi.infrastructure.models.history.tool_call_sanitizing import sanitize_call_id
from kimi.infrastructure.models.openai.responses import OpenAiResponsesModel
from tests.support.providers.anthropic_client import CAN, HISTORY, MARK, TOOLS, ask, assistant, client
from tests.support.providers.provider_server import Json

pytestmark = pytest.mark.anyio


def result(call_id: str, *content: ContentPart) -> Message:
    return Message("tool", content, tool_call_id=call_id)


def blocks(*messages: Message) -> list[Json]:
    body = build_message(messages)
    return [] if body is None else body["content"]


@pytest.mark.spec("R-77")
async def test_results_in_a_row_are_one_message_and_the_last_block_is_marked() -> None:
    calls = tuple(ToolCall(f"t{number}", Function("Shell", f'{{"command":"{number}"}}')) for number in (1, 2))
    history = [
        *HISTORY,
        assistant(TextPart("one moment"), calls=calls),
        result("t1", TextPart("<system>ok</system>"), TextPart("out")),
        result("t2"),
        user_message("and then?"),
    ]
    async with client() as c:
        model = c.model()
        await ask(model, history[:-1])
        await ask(model, history)
        first, second = (request.json["messages"] for request in c.server.requests)
    uses = [
        {"type": "tool_use", "id": f"t{number}", "name": "Shell", "input": {"command": f"{number}"}}
        for number in (1, 2)
    ]
    content = [{"type": "text", "text": "<system>ok</system>"}, {"type": "text", "text": "out"}]
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": content},
        {"type": "tool_result", "tool_use_id": "t2"},
    ]
    assert first == [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "one moment"}, *uses]},
        {"role": "user", "content": [results[0], {**results[1], **MARK}]},
    ]
    assert second == [
        *first[:2],
        {"role": "user", "content": results},
        {"role": "user", "content": [{"type": "text", "text": "and then?", **MARK}]},
    ]


MESSAGES = st.lists(
    st.sampled_from(
        [
            user_message("one"),
            user_message(" "),
            user_message("<notification>two</notification>"),
            Message("system", (TextPart("three"),)),
            assistant(TextPart("four")),
            assistant(ThinkPart("", "E"), calls=(ToolCall("t", Function("A", "{}")),)),
            result("t", TextPart("five")),
            result("t", ImagePart(MediaUrl("https://x/y"))),
        ]
    ),
    min_size=1,
    max_size=12,
)


SETTINGS = ModelSettings(provider_name="p", type="x", model="M", base_url="http://x", capabilities=CAN)
OPENED: list[Callable[[], AnthropicModel | OpenAiResponsesModel]] = [
    lambda: AnthropicModel(SETTINGS, "session-1", HttpClient({}), lambda: ""),
    lambda: OpenAiResponsesModel(SETTINGS, HttpClient({}), lambda: ""),
]


@pytest.mark.parametrize("opened", OPENED)
@given(histories=st.lists(MESSAGES, min_size=1, max_size=4))
def test_cached_encoding_does_not_depend_on_earlier_histories(
    opened: Callable[[], AnthropicModel | OpenAiResponsesModel], histories: list[list[Message]]
) -> None:
    """The body of a model that has seen other histories is that of a model that has seen none."""
    seen = opened()
    whole: list[Message] = []
    for more in histories:
        whole = [*whole, *more]
        assert body_of(seen, whole) == body_of(opened(), list(whole))
    assert body_of(seen, whole[:1]) == body_of(opened(), whole[:1])


def body_of(model: AnthropicModel | OpenAiResponsesModel, history: Sequence[Message]) -> Json:
    """The body of a request, without sending it."""
    return json.loads(model.encode_body("be kind", history, TOOLS, 0))


def test_each_message_is_written_once() -> None:
    written: list[int] = []
    rules = make_unit_rules(CAN)

    def counted(messages: Sequence[Message]) -> bytes:
        written.append(len(messages))
        return rules.encode_unit(messages)

    kept = EncodedHistoryCache(replace(rules, encode_unit=counted))
    history = [user_message("go")]
    for number in range(200):
        history = [*history, assistant(calls=(ToolCall(f"t{number}", Function("A")),)), result(f"t{number}")]
        kept.encode(history)
    assert sum(written) == len(history)


@pytest.mark.spec("R-77")
def test_thinking_is_sent_back_unchanged_only_with_its_signature() -> None:
    said = assistant(
        ThinkPart("unsigned"),
        ThinkPart("hm", "Esig"),
        ThinkPart("", "Eredacted"),
        ThinkPart("", "signature:Esig2"),
        ThinkPart("of another provider", "gAAAAABo"),
        TextPart("so"),
    )
    assert blocks(said) == [
        {"type": "thinking", "thinking": "hm", "signature": "Esig"},
        {"type": "redacted_thinking", "data": "Eredacted"},
        {"type": "thinking", "thinking": "", "signature": "Esig2"},
        {"type": "text", "text": "so"},
    ]


@pytest.mark.spec("R-77")
def test_system_messages_in_the_history_are_tagged() -> None:
    body = build_message([Message("system", (TextPart("be "), TextPart("brief")))])
    assert body == {"role": "user", "content": [{"type": "text", "text": "<system>be brief</system>"}]}


@pytest.mark.spec("R-77")
@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("data:image/png;base64,AAAA", {"type": "base64", "media_type": "image/png", "data": "AAAA"}),
        ("data:image/JPEG;base64,AA==", {"type": "base64", "media_type": "image/jpeg", "data": "AA=="}),
        ("data:image/webp;name=a;base64,AA", {"type": "base64", "media_type": "image/webp", "data": "AA"}),
        ("https://x/y.gif", {"type": "url", "url": "https://x/y.gif"}),
        ("data:image/bmp;base64,AAAA", None),
        ("data:image/png,raw", None),
        ("ms://file-1", None),
    ],
)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_images_are_sent_or_replaced_by_a_placeholder(url: str, source: Json | None, role: str) -> None:
    picture = ImagePart(MediaUrl(url))
    message = result("t", picture) if role == "tool" else Message("user", (picture,))
    content = blocks(message)[0]["content"] if role == "tool" else blocks(message)
    if source is None:
        assert content == [{"type": "text", "text": "[image omitted: the current model cannot read images]"}]
    else:
        assert content == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (VideoPart(MediaUrl("https://x/v")), "[video omitted: the current model cannot read videos]"),
        (AudioPart(MediaUrl("data:audio/wav;base64,AA")), "[audio omitted: the current model cannot read audios]"),
    ],
)
def test_other_media_become_placeholders(part: ContentPart, text: str) -> None:
    assert blocks(Message("user", (part,))) == [{"type": "text", "text": text}]
    assert blocks(result("t", part))[0]["content"] == [{"type": "text", "text": text}]


def test_blank_text_and_blank_messages_are_omitted() -> None:
    assert blocks(user_message(" \n")) == []
    assert blocks(assistant(TextPart(""), ThinkPart("unsigned"))) == []
    call = ToolCall("t", Function("Shell", None))
    assert blocks(assistant(TextPart(" "), calls=(call,))) == [
        {"type": "tool_use", "id": "t", "name": "Shell", "input": {}}
    ]


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "null", ""])
def test_malformed_arguments_are_sent_as_empty_object(arguments: str) -> None:
    call = ToolCall("t", Function("Shell", arguments))
    assert blocks(assistant(calls=(call,)))[0]["input"] == {}


@given(st.text(max_size=80))
def test_ids_fit_every_provider_and_stay_apart(call_id: str) -> None:
    fitted = sanitize_call_id(call_id)
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", fitted)
    assert sanitize_call_id(fitted) == fitted
    assert sanitize_call_id(call_id + ":") != fitted
