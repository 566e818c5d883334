"""The slash commands of a session, in the form of the client's list (acp spec 3.8)."""

from __future__ import annotations

from kimi.application.commands.registry import find_argument_hint, list_agent_commands
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.skill_registry import SKILL_PREFIX
from kimi.domain.command import CommandInfo
from kimi.domain.content.message import JsonObject


def list_available_commands(conversation: Conversation) -> list[JsonObject]:
    """List all commands, including those of skills and flows; names have no slash."""
    return [_describe_command(info) for info in list_agent_commands(conversation)]


def _describe_command(info: CommandInfo) -> JsonObject:
    hint = find_argument_hint(info.name) or ("what to do" if info.name.startswith(SKILL_PREFIX) else None)
    listed = {"name": info.name, "description": info.description}
    return listed | {"input": {"hint": hint}} if hint else listed
