"""A session that is suspended before anything of it was stored goes on with what the client has chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi.interfaces.acp.sessions.open_sessions import OpenSession
from kimi.interfaces.bootstrap.containers import SessionContainer
from tests.support.acp.client import AcpClient, acp_client
from tests.support.acp.stored_sessions import at
from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.anyio

OTHER_MODEL = '[models.other]\nprovider = "p"\nmodel = "o"\nmax_context_size = 5000\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.config = OTHER_MODEL
    return found.script("text: Hello")


class Openings:
    """Counts how often a session becomes live."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, container: SessionContainer, session: OpenSession) -> None:
        self.count += 1


async def choose(client: AcpClient, session_id: str, mode: str) -> None:
    params: Json = {"sessionId": session_id, "configId": "model", "value": "other"}
    await client.result("session/set_config_option", params)
    await client.result("session/set_mode", {"sessionId": session_id, "modeId": mode})


async def reopen(client: AcpClient, place: Place, session_id: str) -> Json:
    """Give the session another root, which suspends it; returns its options by id."""
    result = await client.result("session/resume", at(place, session_id, additionalDirectories=[str(place.home)]))
    return {option["id"]: option["currentValue"] for option in result["configOptions"]}


@pytest.mark.spec("A-53")
@pytest.mark.parametrize("mode", ["plan", "yolo"])
async def test_choices_of_an_unstored_session_survive_its_suspension(place: Place, mode: str) -> None:
    openings = Openings()
    async with acp_client(place, adapt=openings) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await choose(client, session_id, mode)
        assert place.session_dirs() == []
        assert await reopen(client, place, session_id) == {"model": "other", "mode": mode}
    assert openings.count == 2


async def test_choices_from_before_a_suspension_are_stored_with_the_first_prompt(place: Place) -> None:
    async with acp_client(place) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await choose(client, session_id, "plan")
        await reopen(client, place, session_id)
        await client.say(session_id, "hi")
    async with acp_client(place) as client:
        await client.shake_hands()
        assert await reopen(client, place, session_id) == {"model": "other", "mode": "plan"}
