"""A turn of an editor's session is brought to the disk itself when it has ended, however it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.streams.memory import MemoryObjectSendStream

from kimi.application.ports import SessionFiles
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError
from kimi.interfaces.acp.sessions.open_sessions import OpenSession
from kimi.interfaces.bootstrap.containers import SessionContainer
from kimi.interfaces.embed import providers
from tests.support.acp.client import acp_client, prompt, using
from tests.support.fakes import FakeModel, forever
from tests.support.program.wire_process import Place

pytestmark = pytest.mark.anyio


class CountingFiles:
    """The files of a session, which send how many events they have whenever they are brought to the disk."""

    def __init__(self, files: SessionFiles, counts: MemoryObjectSendStream[int]) -> None:
        self._files = files
        self._counts = counts

    async def sync(self) -> None:
        """Count the events."""
        await self._files.sync()
        self._counts.send_nowait(len(list(self._files.events())))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).script("text: unused")


@pytest.mark.parametrize("end", ["finished", "failed", "cancelled"])
async def test_ended_turn_is_brought_to_the_disk(place: Place, end: str) -> None:
    send, counts = anyio.create_memory_object_stream[int](9)
    scripts: dict[str, list[Any]] = {
        "finished": [TextPart("done")],
        "failed": [APIStatusError(400, "no")],
        "cancelled": [TextPart("a start"), forever],
    }

    def adapt(container: SessionContainer, session: OpenSession) -> None:
        using(FakeModel([scripts[end]]))(container, session)
        files = cast("Any", container.files)
        files.override(providers.Object(CountingFiles(container.files(), send)))

    async with send, counts, acp_client(place, adapt=adapt) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        number = await client.request("session/prompt", prompt(session_id, "go"))
        if end == "cancelled":
            await client.until_update("agent_message_chunk")
            await client.notify("session/cancel", {"sessionId": session_id})
        answer = await client.answer_of(number)
        assert ("error" in answer) == (end == "failed")
        with anyio.fail_after(5):
            assert await counts.receive() > 1
        assert counts.statistics().current_buffer_used == 0  # once is enough
