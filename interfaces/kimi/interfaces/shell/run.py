"""`kimi` without a mode: one person at a terminal, session after session (runtime spec 8)."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from kimi.application.control.mcp_servers import mcp_status
from kimi.application.control.switch_model import restore_model
from kimi.application.sessions.open_session import Choice
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.client import Client
from kimi.domain.errors import KimiError, StoreFailed
from kimi.domain.events.event import StatusUpdate
from kimi.interfaces.bootstrap.containers import App, load_settings, negotiation, open_conversation, warm_up
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.shell import walk_files
from kimi.interfaces.process.graceful_shutdown import EXIT_BOUND_S, KILLING_S, STOP_SIGNALS, end_by
from kimi.interfaces.process.process import Streams, hide_secrets, set_session_id
from kimi.interfaces.shell.commands import TABLE, completions
from kimi.interfaces.shell.failures import NO_MODEL, failure_note
from kimi.interfaces.shell.preferences import FIRST_RUN
from kimi.interfaces.shell.render.blocks import Block, Note, Welcome
from kimi.interfaces.shell.render.paint import ColorSystem
from kimi.interfaces.shell.render.status import Status, short_path
from kimi.interfaces.shell.render.transcript import Transcript
from kimi.interfaces.shell.session import GoOn, Leave, Outcome, ShellSession
from kimi.interfaces.shell.shell_context import Place
from kimi.interfaces.shell.terminal.editor import editor_command
from kimi.interfaces.shell.terminal.file_completion import WorkFiles
from kimi.interfaces.shell.terminal.terminal_ui import Entered, Front, Interrupted, Left, Setup
from kimi.interfaces.version import __version__

logger = logging.getLogger(__name__)

NEEDS_TERMINAL: Final = (
    "The interactive shell needs a terminal on stdin and stdout. "
    'Use `kimi --print -p "..."` for a single answer, or `kimi --wire` from a program.\n'
)
_FROM_ENVIRONMENT: Final = {
    "KIMI_BASE_URL": "the base URL",
    "KIMI_API_KEY": "the API key",
    "KIMI_MODEL_NAME": "the model",
    "OPENAI_BASE_URL": "the base URL",
    "OPENAI_API_KEY": "the API key",
}


def run_shell(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve the person at the terminal until they leave; gives the exit status. With `--prompt` one turn only.

    Raises KimiError for what makes a start impossible. Without a terminal it says so, with status 1.
    """
    if not (os.isatty(streams.stdin_fd) and os.isatty(streams.stdout_fd)):
        streams.write_error(NEEDS_TERMINAL)
        return 1
    shell = _Shell(flags, settings, os.environ)
    status = anyio.run(shell.serve)
    if shell.resumable is not None:
        streams.tell_how_to_resume(shell.resumable)
    if shell.signal is not None:
        end_by(shell.signal)
    return status


async def _unless_interrupted(front: Front, ask: Callable[[], Awaitable[str | None]]) -> str | None:
    """What was asked before there is a session; None after Ctrl-C."""
    answer: str | None = None

    async def watch() -> None:
        while not isinstance(await front.read(), Interrupted | Left):
            pass
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        answer = await ask()
        tasks.cancel_scope.cancel()
    return answer


class RunningFront(Front, Protocol):
    """A front that holds the terminal while its context is open."""

    def running(self) -> AbstractAsyncContextManager[None]: ...


class _Shell:
    """A run of the shell: the terminal, and one session after the other."""

    _life: anyio.CancelScope

    def __init__(self, flags: Flags, settings: Settings, environ: Mapping[str, str]) -> None:
        self._flags = self._loaded_for = flags
        self._settings = settings
        self._editor = settings.interface.editor
        self._environ = environ
        self._session: ShellSession | None = None
        self.session_id: str | None = None
        self.resumable: str | None = None
        self.signal: signal.Signals | None = None
        self._gone_at = math.inf

    async def serve(self) -> int:
        front = make_front(self._settings, self._environ)
        status = 0
        self._life = anyio.CancelScope()
        async with front.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_signals)
            with self._life:
                status = await self._sessions(front)
            tasks.cancel_scope.cancel()
        return status

    async def _sessions(self, front: Front) -> int:
        choice = Choice(self._flags.session, last=self._flags.continue_last)
        if self._flags.pick_session:
            from kimi.interfaces.shell.session_picker import pick_session

            picked = await _unless_interrupted(
                front, lambda: pick_session(front, self._settings.share_dir, self._settings.work_dir)
            )
            if picked is None:
                return 0
            choice = Choice(picked)
        return await self._one_after_the_other(front, choice)

    async def _one_after_the_other(self, front: Front, choice: Choice) -> int:
        """Sessions until the person leaves. One that cannot be opened leads back to the one before."""
        outcome: Outcome = GoOn(choice)
        before: Choice | None = None
        while isinstance(outcome, GoOn):
            settings = self._settings
            try:
                if outcome.reload or self._flags != self._loaded_for:
                    self._load_settings(with_editor=outcome.reload)
                next_one = await self._one_session(front, outcome.choice, outcome.prefill)
                before = outcome.choice if self.session_id is None else Choice(self.session_id)
                outcome = next_one
            except KimiError as error:
                if before is None or (outcome.choice == before and not outcome.reload):
                    raise
                front.show(*failure_note(error))
                self._settings, self._loaded_for = settings, self._flags
                outcome = GoOn(before)
        return outcome.status

    def _load_settings(self, *, with_editor: bool) -> None:
        """Read the configuration again. An editor that was chosen meanwhile stays, unless that was to be read, too."""
        self._settings = load_settings(self._flags, self._environ)
        hide_secrets(self._settings.secret_values)
        self._loaded_for = self._flags
        if with_editor:
            self._editor = self._settings.interface.editor

    async def _one_session(self, front: Front, choice: Choice, prefill: str) -> Outcome:
        app = App(settings=providers.Object(self._settings))
        async with open_conversation(app, choice, time_left=self._time_left) as conversation:
            set_session_id(conversation.id)
            self.session_id = conversation.id
            place = Place(app, conversation, self._settings, self._flags, self._environ, self._editor)
            files = WorkFiles(self._settings.work_dir, walk_files)
            try:
                return await self._serve_one(front, place, files, prefill)
            finally:
                files.close()
                self._session = None
                self._flags, self._editor = place.flags, place.editor  # chosen for the sessions that follow too
                self.resumable = None if conversation.is_empty else conversation.id

    async def _serve_one(self, front: Front, place: Place, files: WorkFiles, prefill: str) -> Outcome:
        conversation = place.conversation
        client = Client("kimi-shell", __version__, (1, 10), supports_question=True, supports_plan_mode=True)
        negotiation(place.app, conversation)(client, ())
        session = ShellSession(conversation, front, TABLE, lambda: status_of(session, place), place)
        self._session = session
        self._restore_model(place, front)
        front.begin(
            Setup(
                completions=completions(place, files.matching),
                takes_images=lambda: bool(conversation.model and "image_in" in conversation.model.capabilities),
                editor=lambda: editor_command(place.editor, self._environ),
                unqueue=session.unqueue,
            )
        )
        if self._flags.prompt is not None:
            return Leave(0 if await session.run_once(Entered(self._flags.prompt)) else 1)
        front.show(welcome(place))
        if conversation.files.resumed or conversation.history.messages:
            front.show(*await past_blocks(session))
        if prefill:
            front.prefill(prefill)
        first = None if conversation.model else Entered(f"/login {FIRST_RUN}")
        return await session.run(first, warm_up=partial(warm_up, place.app))

    def _restore_model(self, place: Place, front: Front) -> None:
        """A session goes on with the model it had, unless another one was asked for."""
        if not place.conversation.files.resumed or self._flags.model is not None:
            return
        try:
            if restore_model(place.conversation):
                return
            alias = place.conversation.files.state.model_alias
            front.show(Note(f"The model '{alias}' of this session is no longer configured.", "warning"))
        except KimiError as error:
            front.show(Note(str(error), "warning"))

    async def _watch_signals(self) -> None:
        if sys.platform == "win32":
            return
        with anyio.open_signal_receiver(*STOP_SIGNALS) as received:
            async for number in received:
                if number != signal.SIGINT and self.signal is None:
                    self.signal = number
                    self._gone_at = time.monotonic() + EXIT_BOUND_S
                self._heed(number)

    def _time_left(self) -> float:
        """Seconds that the hooks of the end may take: as many as they want, unless a signal asked for the end."""
        return self._gone_at - time.monotonic() - KILLING_S

    def _heed(self, number: signal.Signals) -> None:
        """Between sessions, and before there is one, any signal ends the shell."""
        if self._session is None:
            self._life.cancel()
        elif number != signal.SIGINT:
            self._session.leave(Leave())
        elif not self._session.front.loan.interrupts_are_its_own:
            self._session.interrupt()


def make_front(settings: Settings, environ: Mapping[str, str]) -> RunningFront:
    """The front that fits the terminal: drawn, or plain lines for screen readers and dumb terminals."""
    if is_plain(environ):
        from kimi.interfaces.shell.terminal.lines import LinesFront

        return LinesFront()
    from kimi.interfaces.shell.terminal.input_history import FileHistory, history_path
    from kimi.interfaces.shell.terminal.paste import Pasted, thresholds
    from kimi.interfaces.shell.terminal.screen import Screen

    return Screen(
        work_dir=settings.work_dir,
        history=FileHistory(history_path(settings.share_dir, settings.work_dir)),
        pasted=Pasted(thresholds(environ), os.path.join(settings.share_dir, "prompt-cache")),
        colour=colour_system(environ),
        theme=settings.interface.theme,
    )


def is_plain(environ: Mapping[str, str]) -> bool:
    """Is a terminal without cursor movement wanted, or the only one there is?"""
    if environ.get("KIMI_PLAIN", "").lower() in ("1", "true", "yes", "on"):
        return True
    unknown = "" if sys.platform == "win32" else "dumb"
    return (environ.get("TERM") or unknown) == "dumb"


def colour_system(environ: Mapping[str, str]) -> ColorSystem | None:
    """The colours that the terminal has; None for a person who wants none (https://no-color.org)."""
    if environ.get("NO_COLOR"):
        return None
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in environ.get("TERM", "") else "standard"


def status_of(session: ShellSession, place: Place) -> Status:
    """What the status bar tells now."""
    conversation, settings = place.conversation, place.settings
    policy, model = conversation.policy, conversation.model
    servers = mcp_status(conversation)
    return Status(
        model=place.model_name,
        directory=short_path(settings.work_dir, place.home),
        branch=place.branch,
        thinking=place.thinks,
        yolo=policy.yolo,
        afk=policy.afk,
        plan=policy.plan,
        tokens=session.context.context_tokens or 0,
        window=model.context_size if model else 0,
        background=place.background,
        mcp=f"mcp {servers.connected}/{servers.total}" if servers else "",
        time=time.strftime("%H:%M"),
        tip="/help",
    )


async def past_blocks(session: ShellSession) -> list[Block]:
    """The end of a session that is taken up again."""
    from kimi.application.sessions.last_turns import last_turns  # start-up time

    conversation = session.conversation
    records = conversation.history.records
    try:
        events = await anyio.to_thread.run_sync(last_turns, conversation.files, records)
    except StoreFailed:
        logger.exception("the turns before could not be read")
        return [Note("The turns before could not be read; the session goes on all the same.", "warning")]
    past = Transcript(conversation.toolset.key_argument, lambda: 0.0, session.place.settings.work_dir)
    for event in events:
        if isinstance(event, StatusUpdate) and event.context_tokens is not None:
            session.context = event
    return [block for event in events for block in past.take(event)]


def welcome(place: Place) -> Welcome:
    """The panel at the start."""
    notes: list[Note] = []
    if place.conversation.model is None:
        notes.append(Note(NO_MODEL, "warning"))
    used = [f"{name} ({what})" for name, what in _FROM_ENVIRONMENT.items() if place.environ.get(name)]
    if used:
        notes.append(Note(f"From the environment: {', '.join(used)}."))
    return Welcome(
        __version__,
        short_path(place.settings.work_dir, place.home),
        place.conversation.id,
        place.model_name,
        tuple(notes),
    )
