"""The slash commands of the agent: a table from name to use-case (runtime spec 7.2).

The handshake lists the commands, so the module of a command is imported only when it runs (start-up time).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final, NamedTuple, TypeAlias, cast

from kimi.application.conversation.conversation import Conversation
from kimi.domain.command import CommandInfo
from kimi.domain.turn import TurnStatus

RunCommand: TypeAlias = Callable[[Conversation, str], Awaitable[TurnStatus | None]]
"""Runs a command with the text after its name; returns the status of the turn, None for `finished`."""


class CommandRow(NamedTuple):
    """A command and its location: `module:function` below this package, where the function is a `RunCommand`.

    `argument_hint` is what an editor shows in the place of the arguments; None for a command that shows nothing there.
    """

    info: CommandInfo
    location: str
    argument_hint: str | None = None


COMMANDS: Final[tuple[CommandRow, ...]] = (
    CommandRow(CommandInfo("init", "Analyse the codebase and write AGENTS.md"), "init_project:init_project"),
    CommandRow(
        CommandInfo("compact", "Compact the context; words after the command say what matters"),
        "compact_context:compact_context",
        "what matters",
    ),
    CommandRow(CommandInfo("clear", "Clear the context", ("reset",)), "clear_context:clear_context"),
    CommandRow(CommandInfo("yolo", "Toggle auto-approval of every action: [on|off]"), "approval_switches:switch_yolo"),
    CommandRow(
        CommandInfo("edits", "Toggle edits mode: edits here run, the rest is asked about: [on|off]"),
        "approval_switches:switch_edits",
    ),
    CommandRow(
        CommandInfo("afk", "Toggle away mode: approve actions, dismiss questions: [on|off]"),
        "approval_switches:switch_afk",
    ),
    CommandRow(
        CommandInfo("plan", "Plan before anything is changed: [on|off|view|clear]"),
        "plan:run_plan_command",
        "on, off, view or clear",
    ),
    CommandRow(
        CommandInfo("add-dir", "Add a directory to the workspace, or list its directories: [path]"),
        "add_directory:add_directory",
        "path of a directory",
    ),
    CommandRow(
        CommandInfo("export", "Write the conversation to a Markdown file: [path]"),
        "export_markdown:export_markdown",
        "path of the file",
    ),
    CommandRow(
        CommandInfo("import", "Take a file or another session as reference: <file or session id>"),
        "import_context:import_context",
        "file or session id",
    ),
    CommandRow(
        CommandInfo("mcp", "List the MCP servers, or connect again what is not connected: [reload]"),
        "show_servers:run_mcp_command",
        "reload",
    ),
    CommandRow(
        CommandInfo("btw", "Ask something beside the work, which is not kept: <question>"),
        "side_question:run_btw_command",
        "question",
    ),
)
"""The commands of every conversation, in the order in which clients list them."""

MODEL_COMMAND: Final = CommandRow(
    CommandInfo("model", "Use another model, or let it think or not: [name] [on|off|level]"),
    "choose_model:run_model_command",
    "name of a model; on, off or a level of thinking",
)
"""Only for clients that ask for it in `initialize`; other clients have their own way to choose models."""


def takes_commands(conversation: Conversation) -> bool:
    """Return whether a prompt may be a command; else every prompt is text (runtime spec 7.1)."""
    return conversation.resources.takes_commands and conversation.client.wants_commands


def list_agent_commands(conversation: Conversation) -> tuple[CommandInfo, ...]:
    """Return all commands of the conversation, those of skills included, in the order in which clients list them."""
    if not takes_commands(conversation):
        return ()
    return (*(row.info for row in _available_commands(conversation)), *conversation.resources.skills.list_commands())


def find_argument_hint(name: str) -> str | None:
    """Return what an editor shows in the place of a command's arguments, or None."""
    return next((row.argument_hint for row in (*COMMANDS, MODEL_COMMAND) if row.info.name == name), None)


def find_command(conversation: Conversation, name: str) -> RunCommand | None:
    """Return the command with this exact name or alias, None if there is none."""
    for row in _available_commands(conversation):
        if name == row.info.name or name in row.info.aliases:
            return load_command(row)
    return None


def load_command(row: CommandRow) -> RunCommand:
    """Import the module of a command and return its function."""
    module, _, function = row.location.partition(":")
    return cast("RunCommand", getattr(import_module(f"{__package__}.{module}"), function))


def _available_commands(conversation: Conversation) -> tuple[CommandRow, ...]:
    return (*COMMANDS, MODEL_COMMAND) if conversation.client.wants_model_command else COMMANDS
