"""The slash commands of a session, as a client lists them (acp spec 3.8)."""

from __future__ import annotations

from typing import Final

from kimi.application.commands.registry import known_commands
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.skill_registry import SKILL
from kimi.domain.command import CommandInfo
from kimi.domain.content.message import JsonObject

_HINTS: Final = {
    "compact": "what matters",
    "plan": "on, off, view or clear",
    "add-dir": "path of a directory",
    "export": "path of the file",
    "import": "file or session id",
    "btw": "question",
    "model": "name of a model, on or off for thinking",
}
"""What may follow a command; those that are not here take nothing."""


def available_commands(conversation: Conversation) -> list[JsonObject]:
    """All commands, those of skills and flows included; names have no slash."""
    return [_listed(info) for info in known_commands(conversation)]


def _listed(info: CommandInfo) -> JsonObject:
    hint = _HINTS.get(info.name) or ("what to do" if info.name.startswith(SKILL) else None)
    listed = {"name": info.name, "description": info.description}
    return listed | {"input": {"hint": hint}} if hint else listed
