"""The slash commands of a session, in the form of the client's list (acp spec 3.8)."""

from __future__ import annotations

from typing import Final

from kimi.application.commands.registry import list_agent_commands
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.skill_registry import SKILL_PREFIX
from kimi.domain.command import CommandInfo
from kimi.domain.content.message import JsonObject

_ARGUMENT_HINTS: Final = {
    "compact": "what matters",
    "plan": "on, off, view or clear",
    "add-dir": "path of a directory",
    "export": "path of the file",
    "import": "file or session id",
    "btw": "question",
    "model": "name of a model, on or off for thinking",
}
"""The hints at the arguments of commands; a command that is not here takes none."""


def list_available_commands(conversation: Conversation) -> list[JsonObject]:
    """List all commands, including those of skills and flows; names have no slash."""
    return [_describe_command(info) for info in list_agent_commands(conversation)]


def _describe_command(info: CommandInfo) -> JsonObject:
    hint = _ARGUMENT_HINTS.get(info.name) or ("what to do" if info.name.startswith(SKILL_PREFIX) else None)
    listed = {"name": info.name, "description": info.description}
    return listed | {"input": {"hint": hint}} if hint else listed
