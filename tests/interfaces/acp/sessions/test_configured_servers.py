"""The MCP servers of the user beside those that an editor brings (tools spec 4.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interfaces.acp.sessions.test_client_servers import approve, program
from tests.support.acp.client import acp_client
from tests.support.mcp.entries import config, raw_entry
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call, step

pytestmark = pytest.mark.anyio


def said_by(server: str, *tools: str) -> Json:
    """Options of the raw server: what each of its tools answers."""
    results = {tool: {"content": [{"type": "text", "text": f"{tool} of {server}"}]} for tool in tools}
    return {"tools": list(tools), "results": results}


async def answers(place: Place, *tools: str, brought: list[Json], flags: Json | None = None) -> dict[str, str]:
    """What each tool answers in a session with the servers that the editor brings, or why there is no answer."""
    place.script(step(*(call(f"call_{tool}", tool, {}) for tool in tools)), step("text: Done."))
    async with acp_client(place, flags=flags) as client:
        client.serve = approve
        await client.shake_hands()
        await client.say(await client.new_session(place, mcpServers=brought), "go")
    ended = {update["toolCallId"].rpartition("/")[2]: update for update in client.updates("tool_call_update")}
    return {tool: ended[f"call_{tool}"]["content"][0]["content"]["text"] for tool in tools}


@pytest.mark.spec("T-119")
async def test_client_servers_override_user_servers_of_the_same_name(tmp_path: Path) -> None:
    place = Place(tmp_path)
    users = {"mine": raw_entry(**said_by("the user", "kept")), "both": raw_entry(**said_by("the user", "old"))}
    (place.share / "mcp.json").write_text(config(**users), encoding="utf-8")
    flags = {"mcp_configs": (config(flag=raw_entry(**said_by("the flag", "more"))),)}
    brought = [program("both", **said_by("the editor", "new"))]
    found = await answers(place, "kept", "more", "new", "old", brought=brought, flags=flags)
    assert [found[tool] for tool in ("kept", "more", "new")] == [
        "kept of the user",
        "more of the flag",
        "new of the editor",
    ]
    assert "not found" in found["old"]


async def test_setting_disables_the_user_servers(tmp_path: Path) -> None:
    place = Place(tmp_path, config="[acp]\nload_user_mcp = false\n")
    (place.share / "mcp.json").write_text(config(mine=raw_entry(**said_by("the user", "kept"))), encoding="utf-8")
    found = await answers(place, "kept", "new", brought=[program("its", **said_by("the editor", "new"))])
    assert found["new"] == "new of the editor"
    assert "not found" in found["kept"]


async def test_a_file_that_is_not_used_may_be_broken(tmp_path: Path) -> None:
    place = Place(tmp_path, config="[acp]\nload_user_mcp = false\n").script("text: Hello")
    (place.share / "mcp.json").write_text("{broken", encoding="utf-8")
    async with acp_client(place) as client:
        await client.shake_hands()
        assert (await client.say(await client.new_session(place), "hi"))["result"]["stopReason"] == "end_turn"
