"""Run the interactive shell: the terminal, and one session after another (runtime spec 8)."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from kimi.application.control.mcp_servers import mcp_status
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.sessions.restore_session import RestoreOptions
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.client import Client
from kimi.domain.errors import KimiError, StoreFailed
from kimi.domain.events.event import StatusUpdate
from kimi.domain.turn import format_cost
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import bind_negotiation, open_conversation, warm_up
from kimi.interfaces.bootstrap.shell import list_git_files, walk_files
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.completion.work_dir_files import WorkDirFiles
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.log import hide_secrets
from kimi.interfaces.process.streams import Streams
from kimi.interfaces.shell.commands import COMMAND_TABLE, build_completion_sources, list_static_commands
from kimi.interfaces.shell.error_notes import NO_MODEL, build_error_notes
from kimi.interfaces.shell.preferences import FIRST_RUN_ARGUMENT
from kimi.interfaces.shell.render.blocks import Block, Note, Welcome
from kimi.interfaces.shell.render.painter import ColorSystem
from kimi.interfaces.shell.render.sanitize import fit_one_line
from kimi.interfaces.shell.render.status import StatusBarState, abbreviate_home
from kimi.interfaces.shell.render.transcript import Transcript
from kimi.interfaces.shell.session import Exit, SessionOutcome, ShellSession, SwitchSession
from kimi.interfaces.shell.shell_context import ShellContext
from kimi.interfaces.shell.terminal.input.editor import find_editor_command
from kimi.interfaces.shell.terminal.terminal_ui import (
    CompletionSources,
    EnteredInput,
    ExitRequested,
    InterruptRequested,
    SessionUISetup,
    TerminalUI,
)
from kimi.interfaces.version import __version__

logger = logging.getLogger(__name__)

NEEDS_TERMINAL: Final = (
    "The interactive shell needs a terminal on stdin and stdout. "
    'Use `kimi --print -p "..."` for a single answer, or `kimi --wire` from a program.\n'
)
_EXIT_RULES: Final = ExitRules(timeout_status=None, immediate_signals=frozenset())
"""The shell has no watchdog, because it must restore the terminal. The time of the session-end hooks is bounded."""

_FROM_ENVIRONMENT: Final = {
    "KIMI_BASE_URL": "the base URL",
    "KIMI_API_KEY": "the API key",
    "KIMI_MODEL_NAME": "the model",
    "OPENAI_BASE_URL": "the base URL",
    "OPENAI_API_KEY": "the API key",
}


def run_shell(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve the user at the terminal until they leave, with `--prompt` for one turn only; return the exit status.

    Without a terminal it writes an error to stderr and returns 1. Raises KimiError when the shell cannot start.
    """
    if not (os.isatty(streams.stdin_fd) and os.isatty(streams.stdout_fd)):
        streams.write_error(NEEDS_TERMINAL)
        return 1
    process = DriverProcess(streams, _EXIT_RULES)
    return process.run(_ShellRun(flags, settings, os.environ, process).serve)


async def _ask_unless_interrupted(ui: TerminalUI, ask: Callable[[], Awaitable[str | None]]) -> str | None:
    """Return the answer of a dialogue that runs before the first session; None after Ctrl-C or Ctrl-D."""
    answer: str | None = None

    async def watch() -> None:
        while not isinstance(await ui.read(), InterruptRequested | ExitRequested):
            pass
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        answer = await ask()
        tasks.cancel_scope.cancel()
    return answer


class StartableTerminalUI(TerminalUI, Protocol):
    """A terminal UI that owns the terminal while its context is open."""

    def terminal_lifespan(self) -> AbstractAsyncContextManager[None]: ...


class _ShellRun:
    """One run of the shell. It owns the terminal and runs one session after the other."""

    _main_scope: anyio.CancelScope

    def __init__(self, flags: Flags, settings: Settings, environ: Mapping[str, str], process: DriverProcess) -> None:
        self._process = process
        self._flags = self._settings_flags = flags
        self._settings = settings
        self._editor = settings.interface.editor
        self._environ = environ
        self._session: ShellSession | None = None
        self.session_id: str | None = None

    async def serve(self) -> int:
        ui = create_terminal_ui(self._settings, self._environ)
        status = 0
        self._main_scope = anyio.CancelScope()
        async with ui.terminal_lifespan(), self._process.watch(self._end, on_interrupt=self._interrupt):
            with self._main_scope:
                status = await self._run_from_start(ui)
        return status

    async def _run_from_start(self, ui: TerminalUI) -> int:
        choice = SessionSelector(self._flags.session, last=self._flags.continue_last)
        if self._flags.pick_session:
            from kimi.interfaces.shell.session_picker import pick_session

            picked = await _ask_unless_interrupted(
                ui, lambda: pick_session(ui, self._settings.share_dir, self._settings.work_dir)
            )
            if picked is None:
                return 0
            choice = SessionSelector(picked)
        return await self._run_sessions(ui, choice)

    async def _run_sessions(self, ui: TerminalUI, selector: SessionSelector) -> int:
        """Run sessions until the user leaves. When a session cannot be opened, the one before is opened again."""
        outcome: SessionOutcome = SwitchSession(selector)
        before: SessionSelector | None = None
        while isinstance(outcome, SwitchSession):
            settings = self._settings
            try:
                if outcome.reload or self._flags != self._settings_flags:
                    self._load_settings(with_editor=outcome.reload)
                next_one = await self._run_session(ui, outcome.selector, outcome.prefill)
                before = outcome.selector if self.session_id is None else SessionSelector(self.session_id)
                outcome = next_one
            except KimiError as error:
                if before is None or (outcome.selector == before and not outcome.reload):
                    raise
                ui.show(*build_error_notes(error))
                self._settings, self._settings_flags = settings, self._flags
                outcome = SwitchSession(before)
        return outcome.status

    def _load_settings(self, *, with_editor: bool) -> None:
        """Read the configuration again. An editor chosen in this run stays, unless `with_editor` reads it, too."""
        self._settings = load_settings(self._flags, self._environ)
        hide_secrets(self._settings.secret_values)
        self._settings_flags = self._flags
        if with_editor:
            self._editor = self._settings.interface.editor

    async def _run_session(self, ui: TerminalUI, selector: SessionSelector, prefill: str) -> SessionOutcome:
        app = App(settings=providers.Object(self._settings))
        options = RestoreOptions(report=lambda text: ui.show(Note(text, "warning")))
        opening = open_conversation(app, selector, time_left=self._process.time_left, restore_options=options)
        async with opening as conversation:
            self.session_id = conversation.id
            context = ShellContext(app, conversation, self._settings, self._flags, self._environ, self._editor)
            files = WorkDirFiles(
                self._settings.work_dir, walk_files, lambda directory: list_git_files(directory, self._environ)
            )
            try:
                with self._process.track_session(conversation):
                    return await self._serve_session(ui, context, files, prefill)
            finally:
                files.close()
                ui.show(*build_leftover_notes(context))
                self._session = None
                self._flags, self._editor = context.flags, context.editor  # chosen for the sessions that follow too

    async def _serve_session(
        self, ui: TerminalUI, shell_context: ShellContext, files: WorkDirFiles, prefill: str
    ) -> SessionOutcome:
        conversation = shell_context.conversation
        client = Client("kimi-shell", __version__, (1, 10), supports_question=True, supports_plan_mode=True)
        bind_negotiation(shell_context.app, conversation)(client, ())
        session = ShellSession(
            conversation, ui, COMMAND_TABLE, lambda: build_status(session, shell_context), shell_context
        )
        self._session = session
        ui.begin_session(
            SessionUISetup(
                completions=build_completion_sources(shell_context, files.find_matching),
                accepts_images=lambda: bool(conversation.model and "image_in" in conversation.model.capabilities),
                editor=lambda: find_editor_command(shell_context.editor, self._environ),
                pop_queued=session.pop_queued,
                take_first_queued=session.take_first_queued,
            )
        )
        if self._flags.prompt is not None:
            return Exit(0 if await session.run_once(EnteredInput(self._flags.prompt)) else 1)
        ui.show(build_welcome(shell_context))
        if conversation.files.is_resumed or conversation.history.messages:
            ui.show(*await load_past_blocks(session))
        if prefill:
            ui.prefill(prefill)
        first = None if conversation.model else EnteredInput(f"/login {FIRST_RUN_ARGUMENT}")
        return await session.run(first, warm_up=partial(warm_up, shell_context.app))

    def _end(self) -> None:
        """End the running session and the shell."""
        if self._session is None:
            self._main_scope.cancel()
        else:
            self._session.end(Exit())

    def _interrupt(self) -> None:
        """Interrupt the running work. Without a session the interrupt ends the shell."""
        if self._session is None:
            self._main_scope.cancel()
        # Ctrl-C signals the whole foreground process group: while a program has the terminal, the program handles it.
        elif not self._session.ui.lease.owns_interrupts:
            self._session.interrupt()


def create_terminal_ui(settings: Settings, environ: Mapping[str, str]) -> StartableTerminalUI:
    """Return the UI that fits the terminal: a drawn screen, or plain lines for screen readers and dumb terminals."""
    if is_plain_terminal(environ):
        from kimi.interfaces.shell.terminal.line_ui import LineTerminalUI

        return LineTerminalUI()
    from kimi.interfaces.shell.terminal.input.input_history import FileHistory, history_path
    from kimi.interfaces.shell.terminal.input.pasted_content import PastedContent, read_fold_thresholds
    from kimi.interfaces.shell.terminal.screen_ui import ScreenTerminalUI

    setup = SessionUISetup(
        completions=CompletionSources(commands=list_static_commands),
        editor=lambda: find_editor_command(settings.interface.editor, environ),
    )
    return ScreenTerminalUI(
        setup,
        work_dir=settings.work_dir,
        history=FileHistory(history_path(settings.share_dir, settings.work_dir)),
        pasted=PastedContent(read_fold_thresholds(environ), os.path.join(settings.share_dir, "prompt-cache")),
        colour=detect_colour_system(environ),
        theme=settings.interface.theme,
    )


def is_plain_terminal(environ: Mapping[str, str]) -> bool:
    """Whether the user asks for plain lines, or the terminal cannot move its cursor."""
    if environ.get("KIMI_PLAIN", "").lower() in ("1", "true", "yes", "on"):
        return True
    unknown = "" if sys.platform == "win32" else "dumb"
    return (environ.get("TERM") or unknown) == "dumb"


def detect_colour_system(environ: Mapping[str, str]) -> ColorSystem | None:
    """Return the colours that the terminal supports; None when NO_COLOR is set (https://no-color.org)."""
    if environ.get("NO_COLOR"):
        return None
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in environ.get("TERM", "") else "standard"


def build_status(session: ShellSession, shell_context: ShellContext) -> StatusBarState:
    """Return the content of the status bar."""
    conversation, settings = shell_context.conversation, shell_context.settings
    policy, model = conversation.policy, conversation.model
    servers = mcp_status(conversation)
    used = conversation.models.usage.figures.session
    return StatusBarState(
        model=shell_context.model_name,
        directory=abbreviate_home(settings.work_dir, shell_context.home),
        branch=shell_context.branch,
        thinking=shell_context.is_thinking,
        yolo=policy.yolo,
        afk=policy.afk,
        edits=policy.edits,
        plan=policy.plan,
        tokens=session.context_usage.context_tokens or 0,
        window=model.context_size if model else 0,
        cost=format_cost(used.cost) if used.cost is not None else "",
        background=shell_context.active_task_count,
        mcp=f"mcp {servers.connected}/{servers.total}" if servers else "",
        time=time.strftime("%H:%M"),
        tip="/help",
    )


def build_leftover_notes(shell_context: ShellContext) -> list[Note]:
    """Return a note that names the background tasks that end with the session, or go on without it."""
    tasks = shell_context.conversation.resources.background.tasks
    active = [task for task in tasks.list_tasks() if task.is_active] if tasks else []
    if not active:
        return []
    names = ", ".join(f"{task.id} ({fit_one_line(task.description or task.command, 60)})" for task in active)
    stays = shell_context.settings.background.keep_alive_on_exit
    commands = [task for task in active if task.kind == "bash"] if stays else []
    if len(commands) == len(active):
        return [Note(f"Still running in the background: {names}.", "warning")]
    return [Note(f"Stopped with this session, in the background: {names}.", "warning")]


async def load_past_blocks(session: ShellSession) -> list[Block]:
    """Return the blocks of the last turns of a resumed session."""
    from kimi.application.sessions.last_turns import load_last_turns  # start-up time

    conversation = session.conversation
    records = conversation.history.records
    try:
        events = await anyio.to_thread.run_sync(load_last_turns, conversation.files, records)
    except StoreFailed:
        logger.exception("the turns before could not be read")
        return [Note("The turns before could not be read; the session goes on all the same.", "warning")]
    past = Transcript(conversation.toolset.key_argument, lambda: 0.0, session.shell_context.settings.work_dir)
    for event in events:
        if isinstance(event, StatusUpdate) and event.context_tokens is not None:
            session.context_usage = event
    return [block for event in events for block in past.handle_event(event)]


def build_welcome(shell_context: ShellContext) -> Welcome:
    """Return the welcome panel of a session."""
    notes: list[Note] = []
    if shell_context.conversation.model is None:
        notes.append(Note(shell_context.conversation.models.explain_missing_model() or NO_MODEL, "warning"))
    used = [f"{name} ({what})" for name, what in _FROM_ENVIRONMENT.items() if shell_context.environ.get(name)]
    if used:
        notes.append(Note(f"From the environment: {', '.join(used)}."))
    notes += [Note(fault, "warning") for fault in shell_context.conversation.toolset.plugin_faults]
    return Welcome(
        __version__,
        abbreviate_home(shell_context.settings.work_dir, shell_context.home),
        shell_context.conversation.id,
        shell_context.model_name,
        tuple(notes),
    )
