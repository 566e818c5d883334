"""Slash commands of the agent: a table from name to use-case (runtime spec 7.2).

The handshake lists them, so what is larger is imported when it is called (start-up time).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from kimi.application.conversation.conversation import Conversation
from kimi.domain.command import CommandInfo
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import StatusUpdate
from kimi.domain.history.session import ContextRecord, SystemPromptRecord
from kimi.domain.turn import TurnStatus

RunCommand: TypeAlias = Callable[[Conversation, str], Awaitable[TurnStatus | None]]
"""A command gets the conversation and the text after its name; it gives how the turn ended, None for `finished`."""


async def clear_context(conversation: Conversation, arguments: str) -> None:
    """Forget the context but for the system prompt; the old file is kept beside the new one."""
    prompt = conversation.history.system_prompt
    records: list[ContextRecord] = [] if prompt is None else [SystemPromptRecord(prompt)]
    conversation.replace_history(records)
    await conversation.emit(TextPart("The context has been cleared."))
    size = conversation.model.context_size if conversation.model else None
    await conversation.emit(StatusUpdate(context_usage=0.0, context_tokens=0, max_context_tokens=size))


async def switch_yolo(conversation: Conversation, arguments: str) -> None:
    """Switch auto-approval on or off, and remember it with the session."""
    yolo = _parse_switch(arguments, conversation.policy.yolo)
    if yolo is None:
        await conversation.emit(TextPart("Usage: /yolo [on|off]; without a word it switches."))
        return
    conversation.update_state(lambda state: replace(state, yolo=yolo))
    conversation.policy = replace(conversation.policy, yolo=yolo)
    on, off = (
        "You only live once! All actions will be auto-approved.",
        "You only die once! Actions will require approval.",
    )
    await conversation.emit(TextPart(on if yolo else off))


async def switch_afk(conversation: Conversation, arguments: str) -> None:
    """Switch away mode on or off: nobody is asked, everything is approved."""
    afk = _parse_switch(arguments, conversation.policy.afk)
    if afk is None:
        await conversation.emit(TextPart("Usage: /afk [on|off]; without a word it switches."))
        return
    conversation.update_state(lambda state: replace(state, afk=afk))
    conversation.policy = replace(conversation.policy, afk=afk)
    on, off = "Away mode ON. Actions are approved, questions are dismissed.", "Away mode OFF. You will be asked again."
    await conversation.emit(TextPart(on if afk else off))


def _parse_switch(arguments: str, current: bool) -> bool | None:
    """The state that the words after a switch ask for, None when they make no sense.

    Whoever writes `/yolo off` must never get it switched on.
    """
    return {"": not current, "on": True, "off": False}.get(arguments.lower())


async def _run_init(conversation: Conversation, arguments: str) -> TurnStatus:
    from kimi.application.commands.init_project import init_project

    return await init_project(conversation, arguments)


async def _run_compact(conversation: Conversation, arguments: str) -> None:
    from kimi.application.step.compact import run_compact_command

    await run_compact_command(conversation, arguments)


async def _run_plan(conversation: Conversation, arguments: str) -> None:
    from kimi.application.commands.plan import run_plan_command

    await run_plan_command(conversation, arguments)


async def _run_add_directory(conversation: Conversation, arguments: str) -> None:
    from kimi.application.commands.add_directory import add_directory

    await add_directory(conversation, arguments)


async def _run_export(conversation: Conversation, arguments: str) -> None:
    from kimi.application.commands.export_markdown import export_markdown

    await export_markdown(conversation, arguments)


async def _run_import(conversation: Conversation, arguments: str) -> None:
    from kimi.application.commands.import_context import import_context

    await import_context(conversation, arguments)


async def _run_btw(conversation: Conversation, arguments: str) -> None:
    from kimi.application.commands.side_question import run_btw_command

    await run_btw_command(conversation, arguments)


async def _run_model(conversation: Conversation, arguments: str) -> None:
    from kimi.application.commands.choose_model import run_model_command

    await run_model_command(conversation, arguments)


COMMANDS: tuple[tuple[CommandInfo, RunCommand], ...] = (
    (CommandInfo("init", "Analyse the codebase and write AGENTS.md"), _run_init),
    (CommandInfo("compact", "Compact the context; words after the command say what matters"), _run_compact),
    (CommandInfo("clear", "Clear the context", ("reset",)), clear_context),
    (CommandInfo("yolo", "Toggle auto-approval of every action: [on|off]"), switch_yolo),
    (CommandInfo("afk", "Toggle away mode: approve actions, dismiss questions: [on|off]"), switch_afk),
    (CommandInfo("plan", "Plan before anything is changed: [on|off|view|clear]"), _run_plan),
    (CommandInfo("add-dir", "Add a directory to the workspace, or list its directories: [path]"), _run_add_directory),
    (CommandInfo("export", "Write the conversation to a Markdown file: [path]"), _run_export),
    (CommandInfo("import", "Take a file or another session as reference: <file or session id>"), _run_import),
    (CommandInfo("btw", "Ask something beside the work, which is not kept: <question>"), _run_btw),
)
"""In the order in which clients list them."""


_MODEL_COMMAND = (CommandInfo("model", "Use another model, or let it think or not: [name] [on|off]"), _run_model)
"""For clients that say in `initialize` that they want it: others choose models their own way."""


def list_agent_commands(conversation: Conversation) -> tuple[CommandInfo, ...]:
    """All commands of the conversation, as clients list them."""
    return (*(info for info, _ in _available_commands(conversation)), *conversation.skills.list_commands())


def _available_commands(conversation: Conversation) -> tuple[tuple[CommandInfo, RunCommand], ...]:
    return (*COMMANDS, _MODEL_COMMAND) if conversation.client.wants_model_command else COMMANDS


def find_command(conversation: Conversation, name: str) -> RunCommand | None:
    """The command with this exact name or alias."""
    for info, run in _available_commands(conversation):
        if name == info.name or name in info.aliases:
            return run
    return None
