"""Only what works is advertised: every capability is used (A-22)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from tests.interfaces.acp.sessions.test_client_servers import remote
from tests.support.acp.client import AcpClient, acp_client, prompt
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call, step

pytestmark = pytest.mark.anyio

Use: TypeAlias = Callable[[AcpClient, Place], Awaitable[None]]


def advertised(value: object, path: str = "") -> Iterator[str]:
    """The paths of everything that is offered."""
    if value is False or path == "_meta":
        return
    if not isinstance(value, dict) or not value:
        yield path
        return
    for name, member in cast("Json", value).items():
        yield from advertised(member, f"{path}.{name}" if path else name)


async def stored(client: AcpClient, place: Place) -> Json:
    """The params that open a session with one turn, which is closed."""
    session_id = await client.new_session(place)
    await say(client, session_id, [{"type": "text", "text": "hi"}])
    await client.result("session/close", {"sessionId": session_id})
    return {"sessionId": session_id, "cwd": str(place.work), "mcpServers": []}


async def say(client: AcpClient, session_id: str, blocks: list[Json]) -> None:
    result = await client.result("session/prompt", {"sessionId": session_id, "prompt": blocks})
    assert result["stopReason"] == "end_turn"


async def image(client: AcpClient, place: Place) -> None:
    block: Json = {"type": "image", "mimeType": "image/png", "data": "iVBORw0K"}
    await say(client, await client.new_session(place), [block])


async def embedded(client: AcpClient, place: Place) -> None:
    resource = {"uri": "file:///x.py", "text": "x = 1"}
    await say(client, await client.new_session(place), [{"type": "resource", "resource": resource}])


async def load(client: AcpClient, place: Place) -> None:
    opening = await stored(client, place)
    client.lines.clear()
    await client.result("session/load", opening)
    assert client.updates("user_message_chunk", opening["sessionId"])


async def resume(client: AcpClient, place: Place) -> None:
    opening = await stored(client, place)
    await client.result("session/resume", opening)
    await say(client, opening["sessionId"], [{"type": "text", "text": "hi"}])


async def fork(client: AcpClient, place: Place) -> None:
    result = await client.result("session/fork", await stored(client, place))
    await say(client, result["sessionId"], [{"type": "text", "text": "hi"}])


async def listing(client: AcpClient, place: Place) -> None:
    opening = await stored(client, place)
    listed = (await client.result("session/list"))["sessions"]
    assert opening["sessionId"] in [one["sessionId"] for one in listed]


async def close(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place)
    await client.result("session/close", {"sessionId": session_id})
    assert (await client.error("session/prompt", prompt(session_id, "hi")))["code"] == -32602


async def delete(client: AcpClient, place: Place) -> None:
    opening = await stored(client, place)
    await client.result("session/delete", {"sessionId": opening["sessionId"]})
    assert (await client.error("session/load", opening))["code"] == -32002


async def more_directories(client: AcpClient, place: Place) -> None:
    extra = place.root / "extra"
    extra.mkdir()
    (extra / "note.txt").write_text("a note", encoding="utf-8")
    place.script(step(call("r1", "ReadFile", {"path": str(extra / "note.txt")})), step("text: read"))
    session_id = await client.new_session(place, additionalDirectories=[str(extra)])
    await say(client, session_id, [{"type": "text", "text": "read"}])
    updates = client.updates("tool_call_update", session_id)
    done = [one for one in updates if one["toolCallId"].endswith("/r1") and one.get("status") == "completed"]
    assert "a note" in done[0]["content"][0]["content"]["text"]


async def servers(client: AcpClient, place: Place) -> None:
    """Both at once: the library of the servers keeps in the process that one of them was shut down."""
    place.script(step(call("c1", "seen_http", {}), call("c2", "seen_sse", {})), step("text: done"))
    async with remote("http") as http, remote("sse") as sse:
        key = [{"name": "X-Key", "value": "k"}]
        entries: list[Json] = [
            {"type": "http", "name": "web", "url": http, "headers": key},
            {"type": "sse", "name": "old web", "url": sse, "headers": key},
        ]
        session_id = await client.new_session(place, mcpServers=entries)
        await client.result("session/set_mode", {"sessionId": session_id, "modeId": "yolo"})
        await say(client, session_id, [{"type": "text", "text": "go"}])
        await client.result("session/close", {"sessionId": session_id})
    updates = client.updates("tool_call_update", session_id)
    done = [one for one in updates if one["toolCallId"].endswith(("/c1", "/c2")) and one.get("status") == "completed"]
    ended = [one["content"][0]["content"]["text"] for one in done]
    assert sorted(ended) == ["http with k", "sse with k"]


USES: dict[str, Use] = {
    "loadSession": load,
    "promptCapabilities.image": image,
    "promptCapabilities.embeddedContext": embedded,
    "mcpCapabilities.http": servers,
    "mcpCapabilities.sse": servers,
    "sessionCapabilities.list": listing,
    "sessionCapabilities.resume": resume,
    "sessionCapabilities.close": close,
    "sessionCapabilities.delete": delete,
    "sessionCapabilities.fork": fork,
    "sessionCapabilities.additionalDirectories": more_directories,
}


@pytest.mark.spec("A-22")
async def test_every_advertised_capability_works(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("image_in",)).script("text: Hello", "text: again")
    async with acp_client(place) as client:
        capabilities = (await client.shake_hands())["agentCapabilities"]
        assert set(advertised(capabilities)) == set(USES)
        for use in dict.fromkeys(USES.values()):
            place.script("text: Hello", "text: again")
            await use(client, place)
