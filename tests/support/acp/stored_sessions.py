"""Stored sessions of an editor, and what the model was sent in them."""

from __future__ import annotations

import json

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from tests.support.acp.client import acp_client, using
from tests.support.fakes import Asked, FakeModel
from tests.support.program.wire_process import Json, Place


def at(place: Place, session_id: str, **more: object) -> Json:
    """Return the params that open a stored session."""
    return {"sessionId": session_id, "cwd": str(place.work), "mcpServers": [], **more}


async def one_turn(place: Place, text: str = "hi", model: FakeModel | None = None) -> str:
    """Store a session with one turn, whose process has ended; return its id."""
    adapt = using(model or FakeModel([[TextPart("Hello")]]))
    async with acp_client(place, adapt=adapt) as client:
        await client.shake_hands()
        session_id = await client.new_session(place)
        await client.say(session_id, text)
    return session_id


def texts_of(asked: Asked) -> list[str]:
    """Return the texts of the context in a model request."""
    return [part.text for message in asked.history for part in message.content if isinstance(part, TextPart)]


def shell(command: str = "true") -> ToolCall:
    """Return a call that runs this command."""
    return ToolCall("c1", Function("Shell", json.dumps({"command": command})))
