"""Scripted answers: the language, the scripts file, the order of use."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, ToolCall, ToolCallPart, user_message
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ChatProviderError,
    ConfigError,
)
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.offline.echo_dsl import parse_script
from kimi.infrastructure.models.offline.scripted import load_scripts, parse_scripts
from kimi.infrastructure.models.provider_types import make_model_opener, open_model

pytestmark = pytest.mark.anyio


# --- the language -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-87")
@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("text: hello", TextPart("hello")),
        ("text:hello", TextPart("hello")),
        ("text:  two blanks  ", TextPart(" two blanks")),
        ("text:", TextPart("")),
        ("  TEXT : x: y", TextPart("x: y")),
        ("text: 'quoted'", TextPart("quoted")),
        ('text: "quoted"', TextPart("quoted")),
        ("text: 'unequal\"", TextPart("'unequal\"")),
        ('text: ""twice""', TextPart('"twice"')),
        ("think: hm", ThinkPart("hm")),
        ("think:", ThinkPart("")),
        ("image_url: http://x/y", ImagePart(MediaUrl("http://x/y"))),
        ('image_url: {"url":"u","id":"7"}', ImagePart(MediaUrl("u", "7"))),
        ('audio_url: {"url":"u"}', AudioPart(MediaUrl("u"))),
        ("video_url: 'u'", VideoPart(MediaUrl("u"))),
        ('tool_call: {"id":"a","name":"F","arguments":"{}"}', ToolCall("a", Function("F", "{}"))),
        ('tool_call: {"id":"a","name":"F"}', ToolCall("a", Function("F"))),
        ('tool_call: {"id":"a","name":"F","arguments":null}', ToolCall("a", Function("F"))),
        ('tool_call: {"id":"a","function":{"name":"F","arguments":"x"}}', ToolCall("a", Function("F", "x"))),
        ('tool_call: {"id":"a","name":"F","extras":{"k":1}}', ToolCall("a", Function("F"), {"k": 1})),
        ("tool_call: id=a, name='F' arguments={}", ToolCall("a", Function("F", "{}"))),
        ('tool_call_part: {"x":', ToolCallPart('{"x":')),
        ('tool_call_part: {"arguments_part":"abc"}', ToolCallPart("abc")),
        ('tool_call_part: {"arguments_part":{"a": 1}}', ToolCallPart('{"a":1}')),
        ('tool_call_part: {"arguments_part":null}', ToolCallPart(None)),
        ('tool_call_part: {"a": 1, "b": [2]}', ToolCallPart('{"a":1,"b":[2]}')),
        ("tool_call_part: null", ToolCallPart(None)),
        ("tool_call_part:", ToolCallPart(None)),
        ("tool_call_part: 12", ToolCallPart("12")),
    ],
)
def test_each_line_is_a_part(line: str, part: StreamPart) -> None:
    assert parse_script(line).parts == [part]


@pytest.mark.spec("R-87")
def test_comments_and_blank_lines_are_ignored() -> None:
    script = parse_script("# comment: x\n\n   \n```echo\nECHO\necho\ntext: a\r\n```\nid: 'm1'")
    assert script.parts == [TextPart("a")]
    assert script.message_id == "m1"
    assert script.usage is None


@pytest.mark.spec("R-87")
@pytest.mark.parametrize(
    ("payload", "usage"),
    [
        ("input_other=10 output=5", TokenUsage(10, 5)),
        ("input_other=10,output='5', input_cache_read=1\tinput_cache_creation=2", TokenUsage(10, 5, 1, 2)),
        ('{"input_other": "10", "output": 5.9}', TokenUsage(10, 5)),
        ("{}", TokenUsage()),
    ],
)
def test_usage_is_parsed(payload: str, usage: TokenUsage) -> None:
    assert parse_script(f"usage: {payload}").usage == usage


@pytest.mark.spec("R-87")
@pytest.mark.parametrize(
    ("payload", "kind", "text", "status"),
    [
        ("429", APIStatusError, "Simulated 429 error", 429),
        ("503 we are full", APIStatusError, "we are full", 503),
        ("connection", APIConnectionError, "Simulated connection error", None),
        ("CONNECTION cut", APIConnectionError, "cut", None),
        ("timeout", APITimeoutError, "Simulated timeout error", None),
        ("timeout too late", APITimeoutError, "too late", None),
    ],
)
def test_scripted_errors_are_parsed(payload: str, kind: type, text: str, status: int | None) -> None:
    error = parse_script(f"text: before\nerror: {payload}\ntext: after").error
    assert type(error) is kind
    assert str(error) == text
    assert getattr(error, "status_code", None) == status


@pytest.mark.spec("R-87")
@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("text: a\nno colon", "Invalid echo DSL at line 2: 'no colon'"),
        ("# c\n\nnope: x", "Unknown echo DSL kind 'nope' at line 3: 'nope: x'"),
        ("usage: [1]", "usage payload must be an object, got list"),
        ("usage:", "usage payload cannot be empty."),
        ("usage: 5x", "Invalid token '5x' in usage payload."),
        ("usage: output=x", "Usage field 'output' must be an integer, got 'x'"),
        ('usage: {"output": null}', "Usage field 'output' must be an integer, got None"),
        ("tool_call: id=a", "tool_call requires string id and name at line 1: 'tool_call: id=a'"),
        (
            'tool_call: {"id":1,"name":"F"}',
            'tool_call requires string id and name at line 1: \'tool_call: {"id":1,"name":"F"}\'',
        ),
        ('tool_call: {"id":"a","name":"F","arguments":{}}', "tool_call.arguments must be a string at line 1, got dict"),
        ("tool_call:", "tool_call payload cannot be empty."),
        ("tool_call: what", "Invalid token 'what' in tool_call payload."),
        ("image_url: {}", "image_url requires a url field, got {}"),
        ("image_url: [1]", "image_url expects url string or object, got list"),
        ('image_url: {"url":"u","id":1}', "image_url id must be a string when provided."),
        ("error:", "Empty error payload at line 1: 'error:'"),
        ("error: soon", "Invalid error spec at line 1: expected status code or 'connection'/'timeout', got 'soon'"),
    ],
)
def test_script_mistakes_are_reported(script: str, text: str) -> None:
    with pytest.raises(ChatProviderError) as raised:
        parse_script(script)
    assert str(raised.value) == text
    assert not raised.value.transient


# --- the file -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-88")
@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ('["text: a", "text: b"]', ["text: a", "text: b"]),
        ("[]", []),
        ("text: a\n---\n\n  text: b  \n---\n\n---\n", ["text: a", "text: b"]),
        ("text: a\r\n---\r\ntext: b", ["text: a", "text: b"]),
        ("text: a --- b", ["text: a --- b"]),
    ],
)
def test_scripts_file_has_two_forms(text: str, scripts: list[str]) -> None:
    assert parse_scripts(text) == scripts


def test_a_scripts_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_text('["text: a"]', encoding="utf-8-sig")
    assert load_scripts({"KIMI_SCRIPTED_ECHO_SCRIPTS": str(path)}) == ["text: a"]


def opened(environ: dict[str, str], provider_env: dict[str, str] | None = None) -> ChatModel:
    return open_model(settings("_scripted_echo", env=provider_env or {}), "s", HttpClient({}), lambda: "", environ)


def settings(kind: str, **more: Any) -> ModelSettings:
    return ModelSettings(provider_name="p", type=kind, model="", **more)


@pytest.mark.spec("R-88")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[1]", "Scripted echo JSON must be an array of strings."),
        ('{"a": "b"}', "Scripted echo JSON must be an array of strings."),
        (
            " \n---\n ",
            "Scripted echo file must be a JSON array of strings or a text file split by '\\n---\\n'.",
        ),
    ],
)
def test_mistakes_in_the_file_end_the_start(tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "scripts.txt"
    path.write_text(content)
    with pytest.raises(ConfigError) as raised:
        opened({"KIMI_SCRIPTED_ECHO_SCRIPTS": str(path)})
    assert str(raised.value) == text


@pytest.mark.spec("R-88")
def test_the_file_must_be_named_and_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^KIMI_SCRIPTED_ECHO_SCRIPTS is required for _scripted_echo\.$"):
        opened({})
    missing = str(tmp_path / "missing")
    with pytest.raises(ConfigError) as raised:
        opened({"KIMI_SCRIPTED_ECHO_SCRIPTS": missing})
    assert str(raised.value) == f"Scripted echo file not found: {missing}"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "scripts").write_text("text: a")
    assert opened({}, {"KIMI_SCRIPTED_ECHO_SCRIPTS": "~/scripts"}).name == "scripted_echo"


# --- the models ---------------------------------------------------------------------------------------------------


async def ask(model: ChatModel, *history: Message) -> list[ModelItem]:
    async with model.stream("", history, [], 0) as items:
        return [item async for item in items]


def scripts_file(tmp_path: Path, *scripts: str) -> dict[str, str]:
    path = tmp_path / "scripts.json"
    path.write_text(json.dumps(scripts))
    return {"KIMI_SCRIPTED_ECHO_SCRIPTS": str(path)}


@pytest.mark.spec("R-87")
async def test_scripts_are_used_in_order_and_then_exhausted(tmp_path: Path) -> None:
    environ = scripts_file(tmp_path, "text: a", "error: 503", "bad", "id: x", "text: b\nusage: output=2\nid: m")
    model = opened({"KIMI_SCRIPTED_ECHO_SCRIPTS": "nowhere"}, environ)
    assert (await ask(model))[0] == TextPart("a")
    for text in (
        "Simulated 503 error",
        "Invalid echo DSL at line 1: 'bad'",
        "ScriptedEchoChatProvider DSL produced no streamable parts.",
    ):
        with pytest.raises(ChatProviderError) as raised:
            await ask(model)
        assert str(raised.value) == text
    assert await ask(model) == [TextPart("b"), ResponseEnd("m", TokenUsage(output=2), "end")]
    for _ in range(2):
        with pytest.raises(ChatProviderError, match=r"^ScriptedEchoChatProvider exhausted at turn 6\.$"):
            await ask(model)


async def test_each_session_has_its_own_script_position(tmp_path: Path) -> None:
    environ = scripts_file(tmp_path, "text: a", "text: b")
    open_for = make_model_opener(settings("_scripted_echo"), HttpClient({}), "2", environ)
    for session, expected in (("s1", "a"), ("s2", "a"), ("s1", "b"), ("s2", "b")):
        model = open_for(session, lambda: "")
        assert model is not None
        assert (await ask(model))[0] == TextPart(expected)


@pytest.mark.parametrize("switch", ["1", "true", "YES", "on"])
async def test_the_trace_goes_to_the_log(
    tmp_path: Path, switch: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    environ = {**scripts_file(tmp_path, "text: ä\nid: 1"), "KIMI_SCRIPTED_ECHO_TRACE": switch}
    with caplog.at_level(logging.INFO):
        await ask(opened(environ))
    assert [record.getMessage() for record in caplog.records] == ['SCRIPTED_ECHO TURN 1: "text: ä\\nid: 1"']
    assert capfd.readouterr().out == ""


async def test_trace_is_off_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await ask(opened({**scripts_file(tmp_path, "text: a"), "KIMI_SCRIPTED_ECHO_TRACE": "0"}))
    assert not caplog.records


@pytest.mark.spec("R-87")
async def test_echo_answers_with_the_last_user_message() -> None:
    model = open_model(settings("_echo"), "s", HttpClient({}), lambda: "", {})
    assert model.name == "echo"
    answer = await ask(model, user_message("text: before"), user_message("text: a\nthink: b"))
    assert answer == [TextPart("a"), ThinkPart("b"), ResponseEnd(None, None, "end")]


@pytest.mark.spec("R-87")
@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([], "EchoChatProvider requires at least one message in history."),
        (
            [Message("assistant", (TextPart("text: a"),))],
            "EchoChatProvider expects the last history message to be user.",
        ),
        ([user_message("# nothing")], "EchoChatProvider DSL produced no streamable parts."),
    ],
)
async def test_echo_without_text_to_repeat_is_an_error(history: list[Message], text: str) -> None:
    model = open_model(settings("_echo"), "s", HttpClient({}), lambda: "", {})
    with pytest.raises(ChatProviderError) as raised:
        await ask(model, *history)
    assert str(raised.value) == text
