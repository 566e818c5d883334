"""The client of the protocol's own library against our server: what an editor built on it does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp import schema
from acp.client.connection import ClientSideConnection

from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Place
from tests.support.providers.scripts import shell, step

pytestmark = pytest.mark.anyio


class Editor:
    """A client that approves everything and keeps what it is told."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        """Nothing to do."""

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def kinds(self) -> list[str]:
        """The kinds of the updates, in order."""
        return [update.session_update for update in self.updates]

    def said(self) -> str:
        """All text of the agent."""
        return "".join(u.content.text for u in self.updates if u.session_update == "agent_message_chunk")


@asynccontextmanager
async def connected(place: Place, editor: Editor) -> AsyncGenerator[ClientSideConnection, None]:
    """The library's connection to a real process."""
    command, *arguments = kimi_command()
    client: Any = editor
    async with acp.spawn_agent_process(
        client,
        command,
        *arguments,
        "acp",
        env=place.full_environ(),
        cwd=str(place.work),
        transport_kwargs={"stderr": None},
        use_unstable_protocol=True,
    ) as (connection, _):
        yield connection


async def test_sdk_client_can_use_the_agent(tmp_path: Path) -> None:
    place = Place(tmp_path, capabilities=("image_in",)).script(
        step("text: Looking.", shell("c1", "echo out")), *(f"text: answer {n}" for n in range(5))
    )
    editor = Editor()
    cwd = str(place.work)
    with anyio.fail_after(30):
        async with connected(place, editor) as agent:
            await agent.initialize(protocol_version=1)
            session = await agent.new_session(cwd=cwd, mcp_servers=[])
            blocks: list[Any] = [
                acp.text_block("look"),
                acp.image_block("iVBORw0K", "image/png"),
                acp.resource_block(acp.embedded_text_resource(uri="file:///x.py", text="x = 1")),
                acp.resource_link_block("note", "file:///note.txt"),
            ]
            answer = await agent.prompt(session_id=session.session_id, prompt=blocks)
            assert answer.stop_reason == "end_turn"
            assert len(editor.asked) == 1
            assert editor.said() == "Looking.answer 0"
            told = {"tool_call", "tool_call_update", "session_info_update", "available_commands_update"}
            assert told <= set(editor.kinds())
            await agent.set_session_mode(session_id=session.session_id, mode_id="yolo")
            options = await agent.set_config_option(session_id=session.session_id, config_id="mode", value="plan")
            assert options is not None
            assert [option.current_value for option in options.config_options] == ["m", "plan"]
            listed = await agent.list_sessions(cwd=cwd)
            assert [one.session_id for one in listed.sessions] == [session.session_id]
            forked = await agent.fork_session(session_id=session.session_id, cwd=cwd)
            await agent.prompt(session_id=forked.session_id, prompt=[acp.text_block("more")])
            await agent.close_session(session_id=session.session_id)
            await agent.resume_session(session_id=session.session_id, cwd=cwd)
            await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("more")])
            editor.updates.clear()
            await agent.load_session(session_id=session.session_id, cwd=cwd, mcp_servers=[])
            assert editor.kinds()[:4] == ["user_message_chunk"] * 4
            await agent.cancel(session_id=session.session_id)
