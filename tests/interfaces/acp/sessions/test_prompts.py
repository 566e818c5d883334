"""Prompts: what is answered, what is cancelled, what waits (acp spec 1.9, 4.2)."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIStatusError, AuthExpired
from kimi.domain.turn import StopReason, TokenUsage
from tests.support.acp.client import AcpClient, acp_client, prompt, using
from tests.support.fakes import FakeModel, forever
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Json, Place, alive, eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: Hello")


def shell_call(command: str, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, Function("Shell", json.dumps({"command": command})))


def ended(reason: StopReason, *parts: ModelItem) -> list[ModelItem]:
    return [*parts, ResponseEnd(stop_reason=reason)]


async def session_of(client: AcpClient, place: Place, **capabilities: object) -> str:
    await client.shake_hands(**capabilities)
    return await client.new_session(place)


# --- turns ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("A-55")
async def test_a_text_prompt_streams_its_answer(place: Place) -> None:
    place.script('text: Hello\ntext: " there,"\ntext:  world', "text: again")
    async with acp_client(place) as client:
        session_id = await session_of(client, place)
        answer = await client.say(session_id, "hi")
        assert answer["result"]["stopReason"] == "end_turn"
        assert client.said() == "Hello there, world"
        assert (await client.say(session_id, "hi"))["result"]["stopReason"] == "end_turn"
        assert await client.quiet()


@pytest.mark.spec("A-60")
async def test_stop_reason_reports_how_the_turn_ended(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.config = "[loop_control]\nmax_steps_per_turn = 1\n"
    place.script("text: unused")
    model = FakeModel(
        [
            ended("end", TextPart("first")),
            ended("length", TextPart("cut")),
            ended("content_filter", TextPart("refused")),
            ended("end", TextPart("after")),
            ended("tool_calls", shell_call("true")),
        ]
    )
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        reasons = [(await client.say(session_id, f"prompt {n}"))["result"]["stopReason"] for n in range(5)]
        assert reasons == ["end_turn", "max_tokens", "refusal", "end_turn", "max_turn_requests"]
    texts = [part.text for message in model.asked[3].history for part in message.content if isinstance(part, TextPart)]
    assert texts == ["prompt 0", "first", "prompt 1", "cut", "prompt 3"]


@pytest.mark.spec("A-61", "A-62")
async def test_failed_prompt_is_reported_and_the_next_one_works(place: Place) -> None:
    overloaded = APIStatusError(529, "The model provider is overloaded (HTTP 529).")
    model = FakeModel(
        [
            [TextPart("partial"), overloaded],
            [overloaded],
            [APIStatusError(401, "The key is not valid.")],
            [APIStatusError(403, "Not allowed.")],
            [AuthExpired(401, "The login has ended.")],
            [TextPart("fine")],
        ]
    )
    place.config = "[loop_control]\nmax_retries_per_step = 2\n"
    place.script("text: unused")
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        error = (await client.say(session_id, "one"))["error"]
        assert error["code"] == -32603
        assert error["message"] == "The model provider is overloaded (HTTP 529)."
        data = {"error": error["message"], "kind": "provider_error", "status": 529, "retryable": True}
        assert error["data"] == data
        for text in ("The key is not valid.", "Not allowed.", "The login has ended."):
            error = (await client.say(session_id, "two"))["error"]
            assert (error["code"], error["message"]) == (-32000, "Authentication required")
            assert error["data"]["error"] == text
            assert error["data"]["authMethods"]
        assert (await client.say(session_id, "three"))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-63", "A-64")
async def test_usage_and_title_are_announced(place: Place) -> None:
    usage = TokenUsage(input_other=300, output=40, input_cache_read=900)
    done: list[ModelItem] = [TextPart("ok"), ResponseEnd("m", usage, "end")]
    model = FakeModel([done, [TextPart("x")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        result = (await client.say(session_id, "Fix the parser"))["result"]
        assert result["usage"] == {
            "totalTokens": 1240,
            "inputTokens": 1200,
            "outputTokens": 40,
            "cachedReadTokens": 900,
            "cachedWriteTokens": 0,
        }
        assert client.updates("usage_update") == [{"sessionUpdate": "usage_update", "used": 1200, "size": 100_000}]
        (info,) = client.updates("session_info_update")
        assert info["title"] == "Fix the parser"
        assert info["updatedAt"].endswith("+00:00")
        assert "usage" not in (await client.say(session_id, "more"))["result"]
        assert len(client.updates("session_info_update")) == 1


@pytest.mark.spec("A-58")
async def test_images_need_a_model_with_image_support(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "mimeType": "image/png", "data": "iVBORw0K"}]
    blind, seeing = Place(tmp_path / "blind"), Place(tmp_path / "seeing", capabilities=("image_in",))
    for place in (blind, seeing):
        place.script("text: A picture")
        async with acp_client(place) as client:
            session_id = await session_of(client, place)
            answer = await client.ask("session/prompt", {"sessionId": session_id, "prompt": blocks})
        if place is seeing:
            assert answer["result"]["stopReason"] == "end_turn"
        else:
            assert answer["error"]["code"] == -32602
            assert answer["error"]["message"] == "The current model does not accept images."
            assert answer["error"]["data"] == {"kind": "unsupported_content", "types": ["image"]}
            assert place.session_dirs() == []
    (asked,) = [record["content"] for record in seeing.context() if record["role"] == "user"]
    assert asked[1]["image_url"]["url"] == "data:image/png;base64,iVBORw0K"


@pytest.mark.spec("A-59")
async def test_prompts_without_usable_content_are_refused(place: Place) -> None:
    async with acp_client(place) as client:
        session_id = await session_of(client, place)
        for blocks in ([], None, "x", [{"type": "audio", "data": "", "mimeType": "audio/wav"}], [{"type": "new"}], [3]):
            error = await client.error("session/prompt", {"sessionId": session_id, "prompt": blocks})
            assert error["code"] == -32602
            assert error["data"]["details"]
        error = await client.error("session/prompt", {"sessionId": "none", "prompt": [{"type": "text", "text": "x"}]})
        assert (error["code"], error["message"]) == (-32602, "Session not found")
        assert (await client.say(session_id, "hi"))["result"]["stopReason"] == "end_turn"


# --- cancelling -------------------------------------------------------------------------------------------------


@pytest.mark.spec("A-65")
async def test_cancel_during_streaming_ends_the_turn(place: Place) -> None:
    patience_s = slowdown()  # a second on a quiet machine
    model = FakeModel([[ThinkPart("hm"), TextPart("begun"), forever], [TextPart("next")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        call_id = await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        await client.notify("session/cancel", {"sessionId": session_id})
        with anyio.fail_after(patience_s):
            assert (await client.answer_of(call_id))["result"]["stopReason"] == "cancelled"
        assert (await client.say(session_id, "go on"))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-66", "A-72", "A-75")
async def test_cancel_during_a_permission_request_ends_the_turn(place: Place) -> None:
    patience_s = slowdown()  # a second on a quiet machine
    model = FakeModel([[shell_call("true")], [shell_call("false", "c2")], [TextPart("end")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        call_id = await client.request("session/prompt", prompt(session_id, "hi"))
        asked = await client.until_method("session/request_permission")
        await client.notify("session/cancel", {"sessionId": session_id})
        with anyio.fail_after(patience_s):
            assert (await client.answer_of(call_id))["result"]["stopReason"] == "cancelled"
        taken_back = [line["params"] for line in client.lines if line.get("method") == "$/cancel_request"]
        assert taken_back == [{"requestId": asked["id"]}]
        (announced,) = client.updates("tool_call")
        last = [update for update in client.updates("tool_call_update") if "status" in update][-1]
        assert (last["toolCallId"], last["status"]) == (announced["toolCallId"], "failed")
        answer: Json = {"outcome": {"outcome": "selected", "optionId": "approve"}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        assert await client.quiet()
        call_id = await client.request("session/prompt", prompt(session_id, "again"))
        asked = await client.until_method("session/request_permission")
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        assert (await client.answer_of(call_id))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-67")
async def test_cancel_kills_a_running_command(place: Place) -> None:
    pid_file = place.work / "pid"
    model = FakeModel([[shell_call("sleep 60 & echo $! > pid; wait")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        call_id = await client.request("session/prompt", prompt(session_id, "hi"))
        await anyio.to_thread.run_sync(eventually, lambda: pid_file.exists() and bool(pid_file.read_text().strip()))
        await client.notify("session/cancel", {"sessionId": session_id})
        assert (await client.answer_of(call_id))["result"]["stopReason"] == "cancelled"
        assert not alive(int(pid_file.read_text(encoding="utf-8")))
        statuses = [update["status"] for update in client.updates("tool_call_update") if "status" in update]
        assert statuses[-1] == "failed"


@pytest.mark.spec("A-70")
async def test_a_cancel_in_the_same_write_is_not_lost(place: Place) -> None:
    model = FakeModel([[forever], [TextPart("next")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        for _ in range(2):  # before and after the SDK has taken over
            message = client.message("session/prompt", prompt(session_id, "hi"))
            cancel: Json = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}}
            await client.send(message, cancel)
            assert (await client.answer_of(message["id"]))["result"]["stopReason"] == "cancelled"
            await anyio.sleep(0.5)
    assert model.asked == []


@pytest.mark.spec("A-71")
async def test_cancel_without_turn_is_ignored(place: Place) -> None:
    async with acp_client(place) as client:
        session_id = await session_of(client, place)
        await client.until_update("available_commands_update")
        for params in ({"sessionId": session_id}, {"sessionId": "none"}, {}, {"sessionId": 5}):
            await client.notify("session/cancel", params)
        assert await client.quiet()
        assert (await client.say(session_id, "hi"))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("A-73")
async def test_a_prompt_is_cancelled_by_the_id_of_its_request(place: Place) -> None:
    model = FakeModel([[TextPart("begun"), forever], [TextPart("second")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        first = await client.request("session/prompt", prompt(session_id, "one"))
        second = await client.request("session/prompt", prompt(session_id, "two"))
        third = await client.request("session/prompt", prompt(session_id, "three"))
        await client.until_update("agent_message_chunk")
        for unknown in (999, "x", None, [1]):
            await client.notify("$/cancel_request", {"requestId": unknown})
        await client.notify("$/cancel_request", {"requestId": third})
        assert (await client.answer_of(third))["result"]["stopReason"] == "cancelled"
        await client.notify("$/cancel_request", {"requestId": first})
        assert (await client.answer_of(first))["result"]["stopReason"] == "cancelled"
        assert (await client.answer_of(second))["result"]["stopReason"] == "end_turn"


@pytest.mark.spec("R-240")
@pytest.mark.parametrize("call_id", ["one", 7, 7.5])
async def test_a_request_with_an_id_in_progress_is_refused_at_once(place: Place, call_id: object) -> None:
    model = FakeModel([[TextPart("begun"), forever], [TextPart("next")]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        said = {"jsonrpc": "2.0", "id": call_id, "method": "session/prompt", "params": prompt(session_id, "one")}
        await client.send(said)
        await client.until_update("agent_message_chunk")
        for method in ("session/prompt", "session/list", "initialize", "nope"):
            await client.send(said | {"method": method})
            refused = await client.until(lambda line: "method" not in line)
            assert (refused["id"], refused["error"]["code"]) == (call_id, -32600), method
        await client.notify("$/cancel_request", {"requestId": call_id})
        answered = await client.until(lambda line: "method" not in line)
        assert (answered["id"], answered["result"]) == (call_id, {"stopReason": "cancelled"})
        await client.send(said)
        answered = await client.until(lambda line: "method" not in line)
        assert answered["result"]["stopReason"] == "end_turn"  # the id is free again


@pytest.mark.parametrize("call_id", [True, [], {}, ["x"]])
async def test_an_id_of_a_type_that_is_no_id_is_refused(place: Place, call_id: object) -> None:
    async with acp_client(place) as client:
        for method in ("initialize", "session/list"):
            await client.send({"jsonrpc": "2.0", "id": call_id, "method": method, "params": {}})
            refused = await client.next_line()
            assert (refused["id"], refused["error"]["code"]) == (None, -32600)


@pytest.mark.spec("A-74")
async def test_prompts_are_queued_behind_the_running_one(place: Place) -> None:
    release = anyio.Event()
    model = FakeModel(
        [[release.wait, TextPart("one")], [TextPart("two")], [TextPart("x"), forever], [TextPart("after")]]
    )
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        ids = [await client.request("session/prompt", prompt(session_id, f"prompt {n}")) for n in range(2)]
        assert await client.quiet() or client.updates("available_commands_update")
        release.set()
        for call_id in ids:
            assert (await client.answer_of(call_id))["result"]["stopReason"] == "end_turn"
        assert client.said() == "onetwo"
        ids = [await client.request("session/prompt", prompt(session_id, f"prompt {n}")) for n in range(3)]
        await client.until_update("agent_message_chunk")
        message = client.message("session/prompt", prompt(session_id, "the last"))
        await client.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}}, message)
        for call_id in ids:
            assert (await client.answer_of(call_id))["result"]["stopReason"] == "cancelled"
        assert (await client.answer_of(message["id"]))["result"]["stopReason"] == "end_turn"
        assert client.said().endswith("after")


async def test_at_most_sixteen_prompts_are_queued(place: Place) -> None:
    model = FakeModel([[TextPart("x"), forever]])
    async with acp_client(place, adapt=using(model)) as client:
        session_id = await session_of(client, place)
        ids = [await client.request("session/prompt", prompt(session_id, "wait")) for _ in range(17)]
        error = await client.error("session/prompt", prompt(session_id, "one too many"))
        assert (error["code"], error["data"]) == (-32600, {"reason": "queue_full"})
        await client.notify("session/cancel", {"sessionId": session_id})
        for call_id in ids:
            assert (await client.answer_of(call_id))["result"]["stopReason"] == "cancelled"


@pytest.mark.spec("A-31")
async def test_logout_is_refused_and_the_running_turn_continues(place: Place) -> None:
    release = anyio.Event()
    model = FakeModel([[TextPart("begun"), release.wait, TextPart(" ended")]])
    async with acp_client(place, adapt=using(model)) as client:
        capabilities = (await client.shake_hands())["agentCapabilities"]
        assert "auth" not in capabilities
        session_id = await client.new_session(place)
        call_id = await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        assert (await client.error("logout", {}))["code"] == -32601
        release.set()
        assert (await client.answer_of(call_id))["result"]["stopReason"] == "end_turn"
        assert client.said() == "begun ended"


@pytest.mark.spec("A-110")
async def test_a_message_is_put_into_the_running_turn(place: Place) -> None:
    release = anyio.Event()
    model = FakeModel([[TextPart("begun"), release.wait], [TextPart("steered")]])
    async with acp_client(place, adapt=using(model)) as client:
        result = await client.shake_hands()
        assert result["_meta"]["steering"] == {"supported": True}
        session_id = await client.new_session(place)
        idle: Json = {"outcome": "promptRequired", "reason": "noRunningTurn"}
        assert await client.result("_session/steering", prompt(session_id, "too early")) == idle
        call_id = await client.request("session/prompt", prompt(session_id, "hi"))
        await client.until_update("agent_message_chunk")
        assert await client.result("_session/steering", prompt(session_id, "also this")) == {"outcome": "injected"}
        picture = {"type": "image", "mimeType": "image/png", "data": "iVBORw0K"}
        refused = await client.error("_session/steering", {"sessionId": session_id, "prompt": [picture]})
        assert refused["data"] == {"kind": "unsupported_content", "types": ["image"]}
        release.set()
        assert (await client.answer_of(call_id))["result"]["stopReason"] == "end_turn"
        assert await client.result("_session/steering", prompt(session_id, "too late")) == idle
        error = await client.error("_other/thing", {})
        assert (error["code"], error["data"]) == (-32601, {"method": "_other/thing"})
        assert client.said() == "begunsteered"
        assert client.updates("user_message_chunk") == []
    assert model.asked[1].history[-1].content == (TextPart("also this"),)
