"""Lines in and out of the ACP server: whatever comes, it is answered and nothing ends (acp spec 2.6, 5.1)."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pytest

from kimi.interfaces.acp.transport.lines import AcpTransport
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from tests.support.acp.client import AcpClient, acp_client, acp_server, prompt
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: Hello")


async def alive(client: AcpClient) -> bool:
    return "sessions" in await client.result("session/list")


@pytest.mark.spec("A-03")
async def test_malformed_json_is_answered(place: Place) -> None:
    async with acp_client(place) as client:
        await client.send_bytes(b"{bad\n")
        assert await client.next_line() == {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32700, "message": "Parse error"},
        }
        await client.shake_hands()
        await client.send_bytes(b"{bad\n")
        assert (await client.next_line())["error"]["code"] == -32700
        assert await alive(client)


@pytest.mark.spec("A-04")
@pytest.mark.parametrize("line", [b"[]", b"1", b'"x"', b"null", b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]'])
async def test_non_object_message_is_refused(place: Place, line: bytes) -> None:
    async with acp_client(place) as client:
        await client.send_bytes(line + b"\n")
        answer = await client.next_line()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        await client.shake_hands()
        await client.send_bytes(line + b"\n")
        assert (await client.next_line())["error"]["code"] == -32600
        assert await alive(client)


async def test_messages_without_method_and_unexpected_answers_are_tolerated(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        await client.send({"jsonrpc": "2.0", "id": 7})
        answer = await client.next_line()
        assert (answer["id"], answer["error"]["code"]) == (7, -32600)
        strays: list[Json] = [
            {"result": {}},
            {"error": "text"},
            {"error": {"code": 1}},
            {"result": None, "error": None},
        ]
        for stray in strays:
            for call_id in (0, 99, "x", [1], None):
                await client.send({"jsonrpc": "2.0", "id": call_id, **stray})
        assert await client.quiet()
        assert await alive(client)


@pytest.mark.spec("A-06")
async def test_blank_lines_and_crlf_are_tolerated(place: Place) -> None:
    async with acp_client(place) as client:
        await client.send_bytes(b"\n\r\n  \n")
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        await client.send_bytes(json.dumps(request).encode() + b"\r\n\r\n")
        assert (await client.answer_of(1))["result"]["protocolVersion"] == 1
        await client.send_bytes(b'{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}\r\n')
        assert (await client.answer_of(2))["result"] == {"sessions": []}


@pytest.mark.spec("A-07")
@pytest.mark.parametrize("call_id", ["text", "", 5, 0, -3, 1.5, None, 2**60])
async def test_ids_are_echoed(place: Place, call_id: object) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        for method, params in (("initialize", {"protocolVersion": 1}), ("session/list", {}), ("nothing", {})):
            await client.send({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params})
            line = await client.next_line()
            assert line["id"] == call_id
            assert type(line["id"]) is type(call_id)


@pytest.mark.parametrize("number", [b"1e999", b"-1e999"])
async def test_an_id_that_is_no_finite_number_is_refused(place: Place, number: bytes) -> None:
    """It could not be echoed: readers of doubles make it infinite, which JSON cannot say."""
    async with acp_client(place) as client:
        await client.shake_hands()
        await client.send_bytes(b'{"jsonrpc":"2.0","id":%b,"method":"session/list"}\n' % number)
        answer = await client.next_line()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert await alive(client)


@pytest.mark.spec("A-08")
async def test_params_may_be_left_out(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        assert await client.result("session/list") == await client.result("session/list", {})


@pytest.mark.spec("A-09")
async def test_unknown_requests_are_refused_and_notifications_ignored(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        for _ in range(2):  # before and after the SDK has taken over
            for name in ("nothing", "session/nothing", "logout", "providers/list", "_nothing"):
                error = await client.error(name, {})
                assert error == {"code": -32601, "message": "Method not found", "data": {"method": name}}
            await client.notify("session/nothing", {})
            await client.notify("_nothing", {})
            assert await client.quiet()
            await client.new_session(place)


@pytest.mark.spec("A-17")
async def test_any_text_round_trips(tmp_path: Path) -> None:
    text = "héllo ✓ 你好 😀 \u2028\u2029\x85"
    place = Place(tmp_path).script(f"text: {text.strip()}", "text: fine")
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, text)
        assert client.said() == text.strip()
        await client.say(session_id, "half \ud83d pair")
        assert client.lines[-1]["result"]["stopReason"] == "end_turn"
    asked = [record["content"] for record in place.context() if record["role"] == "user"]
    assert asked[-2:] == [text, "half \ufffd pair"]


@pytest.mark.spec("A-18")
async def test_an_answer_that_cannot_be_encoded_becomes_an_error() -> None:
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    async def read() -> bytes:
        return b""

    out = UpdateOutbox(write, 1000, lambda: None)
    transport = AcpTransport(read, out, lambda params: {})
    await transport.send({"jsonrpc": "2.0", "id": 3, "result": {"bad": object()}})
    await transport.send({"jsonrpc": "2.0", "id": 4, "error": {"code": 1, "message": "m", "data": {1: object()}}})
    with_errors = [json.loads(line) for line in out.take_piece().splitlines()]
    assert [(line["id"], line["error"]["code"]) for line in with_errors] == [(3, -32603), (4, -32603)]
    assert all(set(line["error"]["data"]) == {"errorId"} for line in with_errors)


@pytest.mark.spec("A-19")
async def test_meta_never_changes_a_request(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    evil: Json = {
        "session_id": "EVIL",
        "sessionId": "EVIL",
        "prompt": [],
        "cwd": str(other),
        "method_id": "x",
        "cursor": "x",
    }
    async with acp_client(place) as client:
        await client.result("initialize", {"protocolVersion": 1, "_meta": {**evil, "clientCapabilities": {}}})
        await client.new_session(place)
        session_id = await client.new_session(place, _meta=evil)
        answer = await client.ask("session/prompt", {**prompt(session_id, "hi"), "_meta": evil})
        listed = (await client.result("session/list", {"_meta": evil}))["sessions"]
        assert [(one["sessionId"], one["cwd"]) for one in listed] == [(session_id, str(place.work))]
        assert answer["result"]["stopReason"] == "end_turn"
        assert client.said(session_id) == "Hello"


async def test_requests_that_come_with_the_end_of_the_input_are_answered(place: Place) -> None:
    new: Json = {"id": 1, "method": "session/new", "params": {"cwd": str(place.work)}}
    last: list[Json] = [new, {"id": 2, "method": "session/list"}, {"id": 3, "method": "nothing"}]
    blocks = deque([as_lines({"id": 0, "method": "initialize", "params": {}}), as_lines(*last), b""])
    written: list[bytes] = []

    async def read() -> bytes:
        return blocks.popleft()

    async def write(data: bytes) -> None:
        written.append(data)

    server = acp_server(place)
    await server.serve(read, UpdateOutbox(write, 1 << 20, lambda: None))
    answers = [line for line in map(json.loads, b"".join(written).splitlines()) if "method" not in line]
    assert {answer["id"]: "result" in answer for answer in answers} == {0: True, 1: True, 2: True, 3: False}


def as_lines(*messages: Json) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


async def test_waiting_chunks_are_joined_and_order_is_kept() -> None:
    async def write(data: bytes) -> None:
        raise AssertionError

    out = UpdateOutbox(write, 10, lambda: None)
    for text in ("a", "b"):
        out.put_update("s", chunk(text, "m1"))
    out.put_update("s", chunk("c", "m2"))
    out.put_update("t", chunk("d", "m2"))
    out.put_update("t", {"sessionUpdate": "plan", "entries": []})
    out.put(b'{"id":1}\n')
    out.put_update("t", chunk("e", "m2"))
    lines = [json.loads(line) for line in out.take_piece().splitlines()]
    texts = [line["params"]["update"].get("content", {}).get("text") for line in lines if "method" in line]
    assert texts == ["ab", "c", "d", None, "e"]
    assert lines[4] == {"id": 1}


def chunk(text: str, message_id: str) -> dict[str, object]:
    return {
        "sessionUpdate": "agent_message_chunk",
        "messageId": message_id,
        "content": {"type": "text", "text": text},
    }
