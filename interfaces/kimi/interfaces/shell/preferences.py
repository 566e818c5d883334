"""Commands that change how the person works: model, theme, editor, provider (runtime spec 2.7, 8).

A choice holds at once and is kept in the configuration file, unless the configuration came with the command line.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from kimi.application.control.switch_model import current_choice, switch_model, thinking_choices
from kimi.application.conversation.model_choice import aliases
from kimi.application.sessions.open_session import Choice
from kimi.domain.errors import KimiError, StateError
from kimi.interfaces.bootstrap.config_file import Changes, change_configuration
from kimi.interfaces.bootstrap.shell import demo_model
from kimi.interfaces.process.startup_errors import NO_LOGIN
from kimi.interfaces.shell.panels import Menu, Option
from kimi.interfaces.shell.render.blocks import Note
from kimi.interfaces.shell.session import GoOn, Outcome, ShellSession

_EDITORS = ("code --wait", "vim", "nano")
_DEFAULT_EDITOR = "$VISUAL, then $EDITOR"
_THINKING = {"": None, "on": True, "off": False}


async def choose_model(session: ShellSession, arguments: str) -> None:
    """`/model [ALIAS] [on|off]`: from the next step on, and as the default from now on."""
    _refuse_with_given_configuration(session)
    alias, _, thinking = arguments.partition(" ")
    if thinking.strip() not in _THINKING:
        raise StateError("Thinking is on or off: /model [alias] [on|off]")
    wanted = (alias, _THINKING[thinking.strip()]) if alias else await _picked_model(session)
    if wanted is None:
        return
    choice = switch_model(session.conversation, *wanted)
    session.front.show(Note(f"Model: {choice.alias}{' (thinking)' if choice.thinking else ''}", "success"))
    if choice.alias:
        session.place.flags = replace(session.place.flags, model=choice.alias, thinking=choice.thinking)
        _keep(session, {("default_model",): choice.alias, ("default_thinking",): choice.thinking})


async def _picked_model(session: ShellSession) -> tuple[str, bool | None] | None:
    """The alias that the person picks, and whether the model shall think; None when they pick nothing."""
    known = aliases(session.conversation.models())
    names = sorted(known)
    if not names:
        raise StateError("No models are configured: /login sets one up.")
    now = current_choice(session.conversation)
    options = tuple(
        Option(name or "(environment)", known[name].model + (", in use" if now and now.alias == name else ""))
        for name in names
    )
    picked = await session.front.ask(Menu("Model", options))
    if picked is None:
        return None
    alias = names[picked.positions[0]]
    if len(thinking_choices(known[alias])) < 2:
        return alias, None
    answer = await session.front.ask(Menu("Let it think first?", (Option("Yes"), Option("No"))))
    return alias, None if answer is None else answer.positions == (0,)


async def choose_theme(session: ShellSession, arguments: str) -> None:
    """`/theme [dark|light]`."""
    names = ("dark", "light")
    name = arguments.strip().lower()
    if name not in names:
        picked = await session.front.ask(Menu("Theme", tuple(map(Option, names))))
        if picked is None:
            return
        name = names[picked.positions[0]]
    session.front.set_theme(name)
    session.front.show(Note(f"Theme: {name}", "success"))
    _keep(session, {("theme",): name})


async def choose_editor(session: ShellSession, arguments: str) -> None:
    """`/editor [COMMAND]`."""
    command = arguments.strip()
    if not command:
        options = (*map(Option, _EDITORS), Option(_DEFAULT_EDITOR), Option("Another command", wants_text=True))
        picked = await session.front.ask(Menu(f"Editor, now: {session.place.editor or _DEFAULT_EDITOR}", options))
        if picked is None:
            return
        at = picked.positions[0]
        command = picked.text or (_EDITORS[at] if at < len(_EDITORS) else "")
    session.place.editor = command
    session.front.show(Note(f"Editor: {command or _DEFAULT_EDITOR}", "success"))
    _keep(session, {("default_editor",): command})


async def log_in(session: ShellSession, arguments: str) -> Outcome | None:
    """`/login`: runs `kimi setup` on this terminal, then goes on with what it wrote."""
    if arguments == FIRST_RUN:
        return await _first_run(session)
    return await _set_up(session)


FIRST_RUN = "first"
"""What `/login` is given when the shell starts without a model."""


async def _first_run(session: ShellSession) -> Outcome | None:
    options = (
        Option("Set up a provider", "kimi setup: base URL, key and model"),
        Option("Try the demo model", "built in; no account, no network"),
        Option("Go on without a model"),
    )
    picked = await session.front.ask(Menu("No model is configured yet. What do you want to do?", options))
    if picked is not None and picked.positions == (0,):
        return await _set_up(session)
    if picked is not None and picked.positions == (1,):
        session.conversation.model = demo_model()
        session.front.show(Note("This is the demo model: it knows one story only. Say anything.", "success"))
    return None


async def _set_up(session: ShellSession) -> Outcome | None:
    _refuse_with_given_configuration(session)
    if not session.front.interactive:
        session.front.show(Note("Run `kimi setup` in another terminal, then type /reload."))
        return None
    command = [sys.executable, "-P", "-m", "kimi", "setup"]  # not a `kimi` that lies in the work dir
    status = await session.front.run_local(command, session.place.settings.work_dir)
    if status != 0:
        session.front.show(Note("Nothing was changed.", "warning"))
        return None
    return GoOn(Choice(session.conversation.id), reload=True)


async def log_out(session: ShellSession, arguments: str) -> None:
    """`/logout`."""
    _refuse_with_given_configuration(session)
    session.front.show(Note(NO_LOGIN))


def _refuse_with_given_configuration(session: ShellSession) -> None:
    if _is_given(session):
        raise StateError("This command changes the configuration file: not with --config or --config-file.")


def _is_given(session: ShellSession) -> bool:
    flags = session.place.flags
    return flags.config is not None or flags.config_file is not None


def _keep(session: ShellSession, changes: Changes) -> None:
    """Write what was chosen; where that fails, or the configuration was given, it holds until the end only."""
    if _is_given(session):
        return
    try:
        change_configuration(session.place.settings.share_dir, changes)
    except KimiError as error:
        session.front.show(Note(f"It holds until you leave: {error}", "warning"))
