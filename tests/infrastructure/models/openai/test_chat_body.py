"""The request body: what is encoded, that it is encoded once, and what `kimi` and `openai_legacy` add."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, Role, ToolCall, estimate_message, message_text, user_message
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.history.encoded_history import EncodedHistory, assemble_body, encode_compact_json
from kimi.infrastructure.models.openai.chat_body import (
    ChatMessageRules,
    build_tool_entry,
    encode_message,
    make_unit_rules,
)
from kimi.infrastructure.models.openai.kimi_profile import add_property_types, compute_completion_limit

RULES = ChatMessageRules("reasoning_content", frozenset())
CALL = ToolCall("tc1", Function("Shell", "{}"))


def encoded(message: Message, rules: ChatMessageRules = RULES) -> dict[str, Any]:
    return json.loads(encode_message(message, rules))


def assistant(*content: ContentPart, calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message("assistant", content, calls)


def test_one_text_is_a_string_and_more_are_parts() -> None:
    assert encoded(user_message("hi")) == {"role": "user", "content": "hi"}
    two = Message("user", (TextPart("a"), TextPart("b")))
    assert encoded(two)["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert encoded(Message("tool", (TextPart("ok"),), tool_call_id="tc1")) == {
        "role": "tool",
        "content": "ok",
        "tool_call_id": "tc1",
    }


def test_media_are_parts_with_their_url() -> None:
    url = MediaUrl("https://x/y")
    message = Message("user", (ImagePart(MediaUrl("u", "7")), AudioPart(url), VideoPart(url)))
    assert encoded(message)["content"] == [
        {"type": "image_url", "image_url": {"url": "u", "id": "7"}},
        {"type": "audio_url", "audio_url": {"url": "https://x/y"}},
        {"type": "video_url", "video_url": {"url": "https://x/y"}},
    ]


@pytest.mark.parametrize("blank", [(), (TextPart(""),), (TextPart(" \n"), TextPart("\t"))])
@pytest.mark.spec("R-74")
def test_blank_content_is_left_out_next_to_tool_calls(blank: tuple[TextPart, ...]) -> None:
    body = encoded(assistant(*blank, calls=(CALL,)))
    assert body == {
        "role": "assistant",
        "tool_calls": [{"type": "function", "id": "tc1", "function": {"name": "Shell", "arguments": "{}"}}],
    }
    assert encoded(assistant(TextPart("so"), calls=(CALL,)))["content"] == "so"
    assert "content" in encoded(assistant(*blank))


def test_thinking_goes_into_its_own_field() -> None:
    message = assistant(ThinkPart("a"), ThinkPart("b", "sig"), TextPart("so"))
    assert encoded(message) == {"role": "assistant", "content": "so", "reasoning_content": "ab"}
    assert encoded(assistant(ThinkPart(""), TextPart("so")))["reasoning_content"] == ""
    assert encoded(message, ChatMessageRules("thoughts", frozenset()))["thoughts"] == "ab"
    assert encoded(message, ChatMessageRules(None, frozenset())) == {"role": "assistant", "content": "so"}


def test_calls_without_arguments_get_an_empty_object() -> None:
    for arguments in (None, ""):
        body = encoded(assistant(calls=(ToolCall("tc1", Function("Shell", arguments)),)))
        assert body["tool_calls"][0]["function"]["arguments"] == "{}"


@given(st.text(st.characters(categories=["L", "N", "P", "Z", "C"]), max_size=20))
def test_any_text_can_be_encoded(text: str) -> None:
    whole = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    assert encoded(user_message(text))["content"] == whole


def test_a_lone_surrogate_is_replaced() -> None:
    assert encode_compact_json({"a": "x\ud800y"}).decode() == '{"a":"x\ufffdy"}'


# --- the history --------------------------------------------------------------------------------------------------

PARTS: st.SearchStrategy[ContentPart] = st.sampled_from(
    [TextPart("a"), TextPart(""), TextPart("<notification x>"), ThinkPart("t"), ImagePart(MediaUrl("u"))]
)


def message_of(role: Role, content: list[ContentPart], called: bool) -> Message:
    return Message(role, tuple(content), (CALL,) if called and role == "assistant" else ())


ROLES: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant", "tool"])
MESSAGES = st.builds(message_of, ROLES, st.lists(PARTS, max_size=2), st.booleans())


def fresh(history: Sequence[Message]) -> EncodedHistory:
    result = EncodedHistory(make_unit_rules(RULES))
    result.update(history)
    return result


@given(st.lists(st.tuples(st.integers(0, 6), st.lists(MESSAGES, max_size=5)), max_size=6))
def test_cached_encoding_equals_fresh_encoding(changes: list[tuple[int, list[Message]]]) -> None:
    history: list[Message] = []
    kept = EncodedHistory(make_unit_rules(RULES))
    for length, added in changes:
        history = [*history[: len(history) - length], *added]
        kept.update(history)
        anew = fresh(history)
        assert kept.units == anew.units
        assert kept.tokens == anew.tokens
        assert kept.has_thinking == anew.has_thinking


def test_known_messages_are_not_encoded_again() -> None:
    history = [user_message("one"), assistant(TextPart("two"))]
    kept = fresh(history)
    before = list(kept.units)
    kept.update([*history, user_message("three")])
    assert all(old is new for old, new in zip(before, kept.units, strict=False))
    assert len(kept.units) == 3


@pytest.mark.parametrize("messages", [[], [b"{}"], [b'{"a":1}', b"{}", b"[]"]])
@pytest.mark.parametrize("fields", [[b'"c":1}'], [b'"b":[]', b'"c":1}']])
def test_body_contains_messages_between_its_fields(messages: list[bytes], fields: list[bytes]) -> None:
    body = json.loads(assemble_body(b'{"model":"m","messages":[', messages, fields))
    assert body.pop("messages") == [json.loads(message) for message in messages]
    assert body == {"model": "m", "c": 1} | ({"b": []} if len(fields) == 2 else {})


def test_consecutive_user_messages_are_merged_except_notifications() -> None:
    notice = user_message("<notification id=1>done</notification>")
    history = [user_message("a"), user_message("b"), notice, user_message("c")]
    kept = fresh(history[:1])
    kept.update(history)
    contents = [json.loads(unit)["content"] for unit in kept.units]
    assert contents == [[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], message_text(notice), "c"]


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (frozenset[str](), ["text", "text", "audio_url"]),
        (frozenset({"image_in"}), ["image_url", "text", "audio_url"]),
        (frozenset({"image_in", "video_in"}), ["image_url", "video_url", "audio_url"]),
    ],
)
def test_media_the_model_cannot_read_become_text_in_its_copy(capabilities: frozenset[str], expected: list[str]) -> None:
    url = MediaUrl("data:x")
    message = Message("tool", (ImagePart(url), VideoPart(url), AudioPart(url)), tool_call_id="tc1")
    history = EncodedHistory(make_unit_rules(ChatMessageRules("reasoning_content", capabilities)))
    history.update([message])
    content = json.loads(history.units[0])["content"]
    assert [part["type"] for part in content] == expected
    if not capabilities:
        assert content[0]["text"] == "[image omitted: the current model cannot read images]"
    assert message.content[0] == ImagePart(url)


def test_the_estimate_counts_text_calls_and_media() -> None:
    message = assistant(TextPart("abcdefgh"), calls=(ToolCall("t", Function("Shell", "12345678")),))
    picture = Message("user", (ImagePart(MediaUrl("u")),))
    history = EncodedHistory(make_unit_rules(ChatMessageRules("reasoning_content", frozenset({"image_in"}))))
    history.update([message, picture])
    assert history.tokens == estimate_message(message) + 2000 == 2 + 1 + 2 + 2000


# --- kimi ---------------------------------------------------------------------------------------------------------


def settings(**more: Any) -> ModelSettings:
    return ModelSettings(provider_name="p", type="kimi", model="m", **more)


@pytest.mark.spec("R-75")
@pytest.mark.parametrize(
    ("cap", "tokens", "expected"),
    [
        (None, 976, 98_000),
        (5000, 976, 5000),
        (200_000, 976, 98_000),
        (0, 976, None),
        (-1, 976, None),
        (None, 200_000, 1),
    ],
)
def test_completion_limit_is_the_rest_of_the_window(cap: int | None, tokens: int, expected: int | None) -> None:
    assert compute_completion_limit(settings(max_completion_tokens=cap, max_context_size=100_000), tokens) == expected


@pytest.mark.spec("T-04")
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, "string"),
        ({"description": "anything"}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, 2]}, "integer"),
        ({"enum": [1, 2.5]}, "number"),
        ({"enum": [1, "a"]}, "string"),
        ({"enum": ["a", None]}, "string"),
        ({"enum": [True, False]}, "boolean"),
        ({"const": 3}, "integer"),
        ({"const": None}, "null"),
        ({"const": {"a": 1}}, "object"),
        ({"properties": {}}, "object"),
        ({"additionalProperties": False}, "object"),
        ({"items": {"type": "string"}}, "array"),
        ({"minItems": 1}, "array"),
        ({"pattern": "x"}, "string"),
        ({"minLength": 1}, "string"),
        ({"minimum": 1}, "number"),
    ],
)
def test_properties_without_a_type_get_one(schema: dict[str, Any], expected: str) -> None:
    original = {"type": "object", "properties": {"x": schema}}
    before = json.dumps(original)
    filled: Any = add_property_types(original)
    assert filled["properties"]["x"]["type"] == expected
    assert json.dumps(original) == before


@pytest.mark.spec("T-04")
@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref"])
def test_combinators_are_left_alone(key: str) -> None:
    node = {key: "#/$defs/a" if key == "$ref" else [{"type": "string"}] if key.endswith("Of") else {"type": "string"}}
    schema = {"type": "object", "properties": {"x": node, "y": {"type": "integer"}}}
    assert add_property_types(schema) == schema


@pytest.mark.spec("T-04")
def test_nested_schemas_get_types_too() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"enum": ["a"]}},
            "map": {"type": "object", "additionalProperties": {"minimum": 0}},
            "one": {"anyOf": [{"const": 1}, {"type": "null"}]},
            "deep": {"properties": {"inner": {}}},
        },
    }
    filled: Any = add_property_types(schema)
    properties = filled["properties"]
    assert properties["list"]["items"]["type"] == "string"
    assert properties["map"]["additionalProperties"]["type"] == "number"
    assert properties["one"] == {"anyOf": [{"const": 1, "type": "integer"}, {"type": "null"}]}
    assert properties["deep"] == {"type": "object", "properties": {"inner": {"type": "string"}}}


@pytest.mark.spec("R-71")
def test_a_tool_is_sent_as_a_function_or_as_one_of_the_provider() -> None:
    tool = ToolSpec("Shell", "runs", {"type": "object"})
    assert build_tool_entry(tool, tool.parameters) == {
        "type": "function",
        "function": {"name": "Shell", "description": "runs", "parameters": {"type": "object"}},
    }
    search = ToolSpec("$web_search", "searches", {"type": "object"})
    assert build_tool_entry(search, {}) == {"type": "builtin_function", "function": {"name": "$web_search"}}
