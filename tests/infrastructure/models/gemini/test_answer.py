"""`gemini` against a recording server: what is made of an answer and of its errors."""

from __future__ import annotations

import pytest

from kimi.application.ports import ResponseEnd
from kimi.domain.content.message import Function, Message, ToolCall
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIEmptyResponseError, APIStatusError, ChatProviderError
from kimi.domain.turn import TokenUsage
from tests.support.dialects.gemini import call, event, quota
from tests.support.providers.gemini_client import HISTORY, OK, PIXEL, ask, client, image, result
from tests.support.providers.provider_server import Event, Reply, dumps

pytestmark = pytest.mark.anyio


def reply(*events: Event) -> Reply:
    return Reply(events, done=False)


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


async def test_received_calls_can_be_sent_back() -> None:
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
async def test_thoughts_text_images_and_usage_are_read() -> None:
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


async def test_empty_answer_error_contains_the_stop_reason() -> None:
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
async def test_quota_error_has_retry_after(quota_id: str, transient: bool) -> None:
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
