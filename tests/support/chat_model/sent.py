"""Checks of the requests that a `ChatModel` over HTTP sends; a part of `tests.support.chat_model.checks`."""

from __future__ import annotations

from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.tools.tool import ToolSpec
from tests.support.chat_model.stage import HISTORY, HttpStage, ask, exchange, merged
from tests.support.dialects.script import Answer

CALL = ("tc1", "Shell", '{"command":"ls"}')
PICTURE = "data:image/png;base64,iVBORw0KGgo="
TOOL = ToolSpec("Shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


async def sends_requests_that_the_service_takes(stage: HttpStage) -> None:
    """The history has everything that a history may contain, also parts from another provider."""
    async with stage.say(Answer(text="well")) as rig:
        history = list(HISTORY)
        for more in _rich_history():
            history += more
            async with rig.model.stream("be kind", history, [TOOL], 0) as items:
                async for _ in items:
                    pass
            stage.row.dialect.check(rig.provider.requests[-1])
        sent = rig.provider.requests[-1].body.decode()
    marks = ("hello", "shall I?", "mark-one", "picture", "mark-two", "mark-three", "mark-four", "mark-five")
    places = [sent.find(mark) for mark in marks]
    assert -1 not in places, sent
    assert places == sorted(places)
    assert all(sent.count(mark) == 1 for mark in marks)
    assert sent.count("iVBORw0KGgo=") == 1
    assert all(sent.count(mark) == 1 for mark in ("be kind", "Runs a command."))


def _rich_history() -> list[list[Message]]:
    """Return the messages in the groups in which the steps of a conversation add them."""
    strange = (ToolCall("Shell:0", Function("Shell", "{}")), ToolCall("x" * 90, Function("Shell", None)))
    blank = Message("assistant", (ThinkPart("unsigned"), TextPart("  ")), strange)
    return [
        [Message("assistant", (ThinkPart("hm"), TextPart("shall I?"))), user_message("mark-one")],
        [Message("user", (TextPart("a picture:"), ImagePart(MediaUrl(PICTURE))))],
        [blank, _result("Shell:0", TextPart("<system>mark-two</system>"), TextPart("")), _result("x" * 90)],
        [Message("system", (TextPart("mark-three"),)), user_message("<notification>mark-four</notification>")],
        [Message("assistant", (TextPart("shall not be empty"),)), user_message("")],
        [user_message("mark-five \ud800")],
    ]


def _result(call_id: str, *content: ContentPart) -> Message:
    return Message("tool", content or (TextPart("done"),), tool_call_id=call_id)


async def replaces_pictures_for_a_model_that_is_blind(stage: HttpStage) -> None:
    picture = Message("user", (TextPart("a picture:"), ImagePart(MediaUrl(PICTURE))))
    async with stage.serve(stage.reply(Answer(text="well")), capabilities=frozenset[str]()) as rig:
        await ask(rig.model, [picture])
        stage.row.dialect.check(rig.provider.requests[0])
        sent = rig.provider.requests[0].body.decode()
    assert "iVBORw0KGgo=" not in sent
    assert "cannot read images" in sent


async def sends_back_what_the_model_said(stage: HttpStage) -> None:
    """The next request contains the thinking with its signature, the text and the calls of the answer."""
    signature = "EsignedThought==" if stage.row.dialect.signs else None
    answer = Answer("deep thought", signature, "good day", (CALL, ("tc2", "Glob", '{"pattern":"*"}')))
    async with stage.serve(stage.reply(answer), stage.reply(Answer(text="well")), thinking=True) as rig:
        items = await ask(rig.model)
        await ask(rig.model, [*HISTORY, *exchange(items)])
        stage.row.dialect.check(rig.provider.requests[1])
        sent = rig.provider.requests[1].body.decode()
    assert ThinkPart("deep thought", signature) in merged(items)
    thought = ["deep thought"] if stage.row.dialect.returns_thinking else []
    marks = [*thought, *([signature] if signature else []), "good day", "Shell", "ls", "Glob", "pattern"]
    assert all(mark in sent for mark in marks)
