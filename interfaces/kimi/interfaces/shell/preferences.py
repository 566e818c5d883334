"""Commands that change the preferences of the user: model, theme, editor, provider (runtime spec 2.7, 8).

A choice takes effect at once and is saved in the configuration file, unless the command line named the configuration.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from kimi.application.admin.configuration import ConfigChanges
from kimi.application.commands.choose_model import format_choice
from kimi.application.control.switch_model import (
    current_choice,
    effort_choices,
    switch_model,
    thinking_choices,
    use_unlisted_model,
)
from kimi.application.conversation.model_selection import models_by_alias
from kimi.application.sessions.open_session import SessionSelector
from kimi.domain.errors import KimiError, StateError
from kimi.interfaces.admin.login import remove_stored_keys
from kimi.interfaces.bootstrap.admin import build_configuration_file
from kimi.interfaces.bootstrap.shell import build_demo_model
from kimi.interfaces.shell.panels import Menu, MenuOption
from kimi.interfaces.shell.render.blocks import Note
from kimi.interfaces.shell.session import SessionOutcome, ShellSession, SwitchSession

_EDITORS = ("code --wait", "vim", "nano")
_DEFAULT_EDITOR = "$VISUAL, then $EDITOR"
_THINKING = {"": None, "on": True, "off": False}


async def choose_model(session: ShellSession, arguments: str) -> None:
    """`/model [ALIAS] [on|off]`: use a model from the next step on, and make it the default."""
    _require_editable_configuration(session)
    alias, _, thinking = arguments.partition(" ")
    if thinking.strip() not in _THINKING:
        raise StateError("Thinking is on or off: /model [alias] [on|off]")
    wanted = (alias, _THINKING[thinking.strip()]) if alias else await _pick_model(session)
    if wanted is None:
        return
    choice = switch_model(session.conversation, *wanted)
    session.ui.show(Note(f"Model: {choice.alias}{' (thinking)' if choice.thinking else ''}", "success"))
    if choice.alias:
        session.shell_context.flags = replace(session.shell_context.flags, model=choice.alias, thinking=choice.thinking)
        _save_preferences(session, {("default_model",): choice.alias, ("default_thinking",): choice.thinking})


async def choose_effort(session: ShellSession, arguments: str) -> None:
    """`/effort [LEVEL]`: how much the model thinks, from the next step of this session on."""
    choice = current_choice(session.conversation)
    model = models_by_alias(session.conversation.models.require_catalog()).get(choice.alias) if choice else None
    levels = effort_choices(model) if model is not None else ()
    if choice is None or not levels:
        raise StateError("How much this model thinks cannot be chosen.")
    level = arguments.strip()
    if not level:
        options = tuple(MenuOption(name, "in use" if name == choice.effort else "") for name in levels)
        picked = await session.ui.ask(Menu("Thinking", options))
        if picked is None:
            return
        level = levels[picked.positions[0]]
    chosen = switch_model(session.conversation, effort=level)
    session.ui.show(Note(f"Model: {format_choice(chosen)}", "success"))


async def _pick_model(session: ShellSession) -> tuple[str, bool | None] | None:
    """Return the alias that the user picks, and whether the model thinks first; None when nothing is picked."""
    known = models_by_alias(session.conversation.models.require_catalog())
    names = sorted(known)
    if not names:
        raise StateError("No models are configured: /login sets one up.")
    now = current_choice(session.conversation)
    options = tuple(
        MenuOption(name or "(environment)", known[name].model + (", in use" if now and now.alias == name else ""))
        for name in names
    )
    picked = await session.ui.ask(Menu("Model", options))
    if picked is None:
        return None
    alias = names[picked.positions[0]]
    if len(thinking_choices(known[alias])) < 2:
        return alias, None
    answer = await session.ui.ask(Menu("Let it think first?", (MenuOption("Yes"), MenuOption("No"))))
    return alias, None if answer is None else answer.positions == (0,)


async def choose_theme(session: ShellSession, arguments: str) -> None:
    """`/theme [dark|light]`: use a theme and make it the default."""
    names = ("dark", "light")
    name = arguments.strip().lower()
    if name not in names:
        picked = await session.ui.ask(Menu("Theme", tuple(map(MenuOption, names))))
        if picked is None:
            return
        name = names[picked.positions[0]]
    session.ui.set_theme(name)
    session.ui.show(Note(f"Theme: {name}", "success"))
    _save_preferences(session, {("theme",): name})


async def choose_editor(session: ShellSession, arguments: str) -> None:
    """`/editor [COMMAND]`: use an editor for prompts and make it the default."""
    command = arguments.strip()
    if not command:
        options = (
            *map(MenuOption, _EDITORS),
            MenuOption(_DEFAULT_EDITOR),
            MenuOption("Another command", wants_text=True),
        )
        picked = await session.ui.ask(Menu(f"Editor, now: {session.shell_context.editor or _DEFAULT_EDITOR}", options))
        if picked is None:
            return
        at = picked.positions[0]
        command = picked.text or (_EDITORS[at] if at < len(_EDITORS) else "")
    session.shell_context.editor = command
    session.ui.show(Note(f"Editor: {command or _DEFAULT_EDITOR}", "success"))
    _save_preferences(session, {("default_editor",): command})


async def log_in(session: ShellSession, arguments: str) -> SessionOutcome | None:
    """`/login`: run `kimi setup` on this terminal, then reload the configuration."""
    if arguments == FIRST_RUN_ARGUMENT:
        return await _offer_first_run(session)
    return await _run_setup(session)


FIRST_RUN_ARGUMENT = "first"
"""The argument of `/login` when the shell starts without a model."""


async def _offer_first_run(session: ShellSession) -> SessionOutcome | None:
    """Open the setup where only a key is missing; else ask what to do about the missing model."""
    if session.conversation.models.explain_missing_model() and not _is_configuration_given(session):
        return await _run_setup(session)
    options = (
        MenuOption("Set up a provider", "kimi setup: base URL, key and model"),
        MenuOption("Try the demo model", "built in; no account, no network"),
        MenuOption("Go on without a model"),
    )
    picked = await session.ui.ask(Menu("No model is configured yet. What do you want to do?", options))
    if picked is not None and picked.positions == (0,):
        return await _run_setup(session)
    if picked is not None and picked.positions == (1,):
        use_unlisted_model(session.conversation, build_demo_model())
        session.ui.show(Note("This is the demo model: it knows one story only. Say anything.", "success"))
    return None


async def _run_setup(session: ShellSession) -> SessionOutcome | None:
    _require_editable_configuration(session)
    if not session.ui.is_interactive:
        session.ui.show(Note("Run `kimi setup` in another terminal, then type /reload."))
        return None
    command = [sys.executable, "-P", "-m", "kimi", "setup"]  # -P: not a `kimi` package in the work directory
    status = await session.ui.run_program(command, session.shell_context.settings.work_dir)
    if status != 0:
        session.ui.show(Note("Nothing was changed.", "warning"))
        return None
    return SwitchSession(SessionSelector(session.conversation.id), reload=True)


async def log_out(session: ShellSession, arguments: str) -> None:
    """`/logout`: remove the stored keys, as `kimi logout` does."""
    _require_editable_configuration(session)
    session.ui.show(Note(remove_stored_keys(session.shell_context.settings.share_dir)))


def _require_editable_configuration(session: ShellSession) -> None:
    if _is_configuration_given(session):
        raise StateError("This command changes the configuration file: not with --config or --config-file.")


def _is_configuration_given(session: ShellSession) -> bool:
    flags = session.shell_context.flags
    return flags.config is not None or flags.config_file is not None


def _save_preferences(session: ShellSession, changes: ConfigChanges) -> None:
    """Save a choice. When that fails, or the command line named the configuration, it holds for this run only."""
    if _is_configuration_given(session):
        return
    try:
        build_configuration_file(session.shell_context.settings.share_dir).change(changes)
    except KimiError as error:
        session.ui.show(Note(f"It holds until you leave: {error}", "warning"))
