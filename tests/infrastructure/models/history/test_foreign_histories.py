"""A history goes on with another provider than it was written by: each adapter makes of it what its service takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.infrastructure.models.history.encoded_history import EncodedHistory
from kimi.infrastructure.models.history.tool_call_sanitizing import make_nine_char_id, shorten_call_id
from kimi.infrastructure.models.openai.chat_body import ChatMessageRules, HistoryFormat, make_unit_rules
from kimi.infrastructure.models.openai.compatible import make_compatible_profile
from tests.support.chat_model.stage import HISTORY, HttpStage, ask, exchange
from tests.support.dialects.script import Answer, Row
from tests.support.dialects.table import ROWS
from tests.support.providers.provider_server import Json

pytestmark = pytest.mark.anyio

PICTURE = "data:image/png;base64,iVBORw0KGgo="
_BLANK = "This message holds no text."
IDS = ("toolu_01A09q90qw90lq917835lq9", "functions.Shell:0", "", "call_" + "x" * 59)


@pytest.mark.parametrize("reader", ROWS, ids=lambda row: row.type)
@pytest.mark.parametrize("writer", ROWS, ids=lambda row: row.type)
async def test_each_provider_accepts_histories_of_the_others(writer: Row, reader: Row) -> None:
    """Thinking, text and two calls; then a second step with a call alone; then text; then the other provider."""
    signature = "EsignedThought==" if writer.dialect.signs else None
    first = Answer("hm", signature, "good day", ((IDS[0], "Shell", '{"command":"ls"}'), (IDS[1], "Glob", "{}")))
    answers = (first, Answer(calls=((IDS[3], "Shell", '{"command":"pwd"}'),)), Answer("so", signature, "done"))
    history: list[Message] = list(HISTORY)
    async with HttpStage(writer).say(*answers) as rig:
        for _ in answers:
            history += exchange(await ask(rig.model, history))
    await _sent(reader, [*history, user_message("go on")])


def _results(*calls: ToolCall, picture: bool = False) -> list[Message]:
    content = (TextPart("<system>ok</system>"), *([ImagePart(MediaUrl(PICTURE))] if picture else []), TextPart("out"))
    return [Message("tool", content, tool_call_id=call.id) for call in calls]


def _asked(*calls: ToolCall, picture: bool = False) -> list[Message]:
    return [user_message("a"), Message("assistant", (), calls), *_results(*calls, picture=picture), user_message("b")]


_TWO = (ToolCall("c1", Function("Read", "{}")), ToolCall("c2", Function("Read", "{}")))
HARD: dict[str, Sequence[Message]] = {
    "broken arguments": _asked(
        *(ToolCall(f"c{n}", Function("Shell", text)) for n, text in enumerate(['{"a":', "[1]", '"x"', "7", "null"]))
    ),
    "invented names": _asked(
        *(ToolCall(f"c{n}", Function(name, "{}")) for n, name in enumerate(["functions.Shell", "a b", "", "é" * 90]))
    ),
    "long ids": _asked(*(ToolCall(("i" * 90) + str(n), Function("Shell", "{}")) for n in range(2))),
    "pictures in results": _asked(*_TWO, picture=True),
    "pictures of the model": [
        user_message("draw"),
        Message("assistant", (TextPart("here"), ImagePart(MediaUrl(PICTURE)))),
        user_message("again"),
        Message("assistant", (ImagePart(MediaUrl(PICTURE)), VideoPart(MediaUrl("data:video/mp4;base64,AA=="))), _TWO),
        *_results(*_TWO),
        Message("assistant", (AudioPart(MediaUrl("data:audio/wav;base64,AA==")),)),
    ],
    "thinking alone": [
        user_message("a"),
        Message("assistant", (ThinkPart("hm", "gAAAAsigned"),)),
        user_message("b"),
        Message("assistant", (ThinkPart("hm", "gAAAAsigned"), TextPart("so"), ThinkPart("hm", "gAAAAmore"))),
        user_message("c"),
    ],
    "system messages": [
        user_message("a"),
        Message("system", (TextPart("one"),)),
        Message("system", (TextPart("two"),)),
        Message("assistant", (TextPart(" \n"),)),
        user_message("b"),
    ],
    "ids that come again": [*_asked(*_TWO), *_asked(ToolCall("c1_2", Function("Read", "{}"))), *_asked(*_TWO)],
    "results and nothing more": _asked(*_TWO, picture=True)[:-1],
}


@pytest.mark.parametrize("reader", ROWS, ids=lambda row: row.type)
@pytest.mark.parametrize("name", HARD)
async def test_irregular_histories_are_sent_in_valid_form(reader: Row, name: str) -> None:
    await _sent(reader, HARD[name])


@pytest.mark.parametrize("reader", ROWS, ids=lambda row: row.type)
async def test_blank_message_is_sent_with_placeholder_text(reader: Row) -> None:
    """What services refuse would end the session for good: no text, a request without a message of the user."""
    assert json.dumps(await _sent(reader, [Message("user", ())])).count(_BLANK) == 1
    answers = [Message("assistant", (TextPart("hm"),)), Message("assistant", (TextPart("\n"),))]
    body = await _sent(reader, [user_message(""), answers[0], user_message(" \n"), answers[1], user_message("so")])
    assert json.dumps(body).count(_BLANK) == 3
    body = await _sent(reader, HARD["thinking alone"])
    assert json.dumps(body).count(_BLANK) == 1


@pytest.mark.parametrize("reader", ROWS, ids=lambda row: row.type)
async def test_history_without_its_beginning_starts_with_a_user_message(reader: Row) -> None:
    body = json.dumps(await _sent(reader, _asked(*_TWO)[1:]))
    assert 0 < body.index("The beginning of this conversation is lost.") < body.index('"Read"')


async def _sent(reader: Row, history: Sequence[Message]) -> Json:
    """The body that the service gets, which it takes."""
    async with HttpStage(reader).say(Answer(text="well")) as rig:
        await ask(rig.model, history)
        reader.dialect.check(rig.provider.requests[0])
        return rig.provider.requests[0].json


# --- servers of chat completions ---------------------------------------------------------------------------------


def _messages(history: Sequence[Message], form: HistoryFormat) -> list[Any]:
    encoded = EncodedHistory(make_unit_rules(ChatMessageRules(None, frozenset({"image_in"}), form)))
    encoded.update(history)
    return json.loads(b"[" + b",".join(encoded.units) + b"]")


def _form(url: str, host: str) -> HistoryFormat:
    settings = ModelSettings(provider_name="p", type="openai_legacy", model="m", base_url=url)
    return make_compatible_profile(settings, host).history_format


def test_result_images_follow_all_results_of_the_step() -> None:
    sent = _messages(HARD["pictures in results"], _form("https://api.openai.com/v1", "api.openai.com"))
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [part["type"] for part in sent[4]["content"]] == ["text", "image_url", "image_url"]
    assert "next message" in json.dumps(sent[2]["content"])


def test_deepseek_gets_text_as_one_string() -> None:
    sent = _messages(_asked(*_TWO), _form("https://api.deepseek.com/v1", "api.deepseek.com"))
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["<system>ok</system>\nout"] * 2


def test_mistral_gets_ids_of_nine_letters() -> None:
    sent = _messages(_asked(*_TWO), _form("https://api.mistral.ai/v1", "api.mistral.ai"))
    ids = [call["id"] for call in sent[1]["tool_calls"]]
    assert ids == [one["tool_call_id"] for one in sent if one["role"] == "tool"]
    assert len(set(ids)) == 2
    assert all(len(one) == 9 and one.isalnum() for one in ids)
    assert make_nine_char_id("D681PevKs") == "D681PevKs"


def test_short_ids_are_unchanged() -> None:
    assert shorten_call_id("functions.Shell:0") == "functions.Shell:0"
    assert len({shorten_call_id("x" * 50 + end) for end in "abc"}) == 3
    assert len(shorten_call_id("")) == 9
