"""One session in the shell: user actions become turns and commands, events become blocks and panels."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio
import anyio.to_thread

from kimi.application.control.mcp_servers import start_servers
from kimi.application.control.plan_mode import set_plan_mode
from kimi.application.control.resolve_request import resolve_request
from kimi.application.control.steer import steer
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.pending_requests import build_refusal
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.step.notifications import POLL_INTERVAL_S, notify_client
from kimi.domain.command import Command, CommandInfo, parse_command
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import KimiError, StateError, StoreFailed
from kimi.domain.events.event import ApprovalResponse, Event, StatusUpdate, TurnEnd
from kimi.domain.events.request import Answer, ApprovalRequest, HookRequest, QuestionRequest, ToolCallRequest
from kimi.interfaces.shell.error_notes import build_error_notes
from kimi.interfaces.shell.panels import (
    build_approval_answer,
    build_approval_menu,
    build_question_answer,
    build_question_menus,
)
from kimi.interfaces.shell.render.blocks import Block, Note, OutputBlock, ThinkingBlock
from kimi.interfaces.shell.render.status import StatusBarState
from kimi.interfaces.shell.render.transcript import Transcript
from kimi.interfaces.shell.shell_context import ShellContext
from kimi.interfaces.shell.terminal.terminal_ui import (
    EnteredInput,
    ExitRequested,
    InterruptRequested,
    LiveView,
    PlanModeToggled,
    SteerRequested,
    TerminalUI,
    ThinkingRequested,
    UserAction,
)

logger = logging.getLogger(__name__)

EXIT_WINDOW_S: Final = 2.0
"""A second Ctrl-C within so many seconds leaves the shell."""
MAX_AUTOMATIC_TURNS: Final = 20
"""So many turns in a row begin by themselves; then the user must say something."""
CONTINUE_PROMPT: Final = "A background task has ended. Go on with what waited for it; if nothing did, say so in a line."
_AGENT_COMMANDS_IN_SHELL_MODE: Final = frozenset({"export", "import"})
_EXIT_WORDS: Final = frozenset({"exit", "quit", "/exit", "/quit"})


@dataclass(frozen=True, slots=True)
class Exit:
    """The outcome that ends the shell with this status."""

    status: int = 0


@dataclass(frozen=True, slots=True)
class SwitchSession:
    """The outcome that switches to another session. `prefill` goes into its input; `reload` reads the configuration."""

    selector: SessionSelector
    prefill: str = ""
    reload: bool = False


SessionOutcome: TypeAlias = Exit | SwitchSession
ShellCommand: TypeAlias = Callable[["ShellSession", str], Awaitable["SessionOutcome | None"]]
"""A command of the shell itself. It takes the session and the text after the command's name."""


@dataclass(frozen=True, slots=True)
class CommandTable:
    """The shell's commands: how they are listed, their handlers, and which may run during a turn or in shell mode."""

    infos: tuple[CommandInfo, ...] = ()
    handlers: dict[str, ShellCommand] = field(default_factory=dict[str, ShellCommand])
    during_turn: frozenset[str] = frozenset()
    in_shell_mode: frozenset[str] = frozenset()


class ShellSession:
    """The state of one session in the shell: the running work, the queued input, and the context usage."""

    def __init__(
        self,
        conversation: Conversation,
        ui: TerminalUI,
        table: CommandTable,
        get_status: Callable[[], StatusBarState],
        shell_context: ShellContext,
    ) -> None:
        self.conversation = conversation
        self.ui = ui
        self.table = table
        self.context_usage = StatusUpdate(context_tokens=0)
        self.transcript = Transcript(conversation.toolset.key_argument, time.monotonic, shell_context.settings.work_dir)
        self.shell_context = shell_context
        self._get_status = get_status
        self._work_dir = shell_context.settings.work_dir
        self._queue: deque[EnteredInput] = deque()
        self._work_started_at: float | None = None
        self._work_scope: anyio.CancelScope | None = None
        self._panel_scopes: dict[str, anyio.CancelScope] = {}
        self._interrupted_at = -EXIT_WINDOW_S
        self._reading_scope = anyio.CancelScope()
        self._is_single_run = False
        self._automatic_turns = 0
        self._answered_tasks: set[str] = set()
        self._outcome: SessionOutcome = Exit()
        self._idle = anyio.Event()
        self._idle.set()
        self.failed = False

    async def run(self, first: EnteredInput | None = None, warm_up: Callable[[], None] | None = None) -> SessionOutcome:
        """Serve the user until they leave or switch sessions. `first` is run as if the user had entered it.

        `warm_up` runs in a thread while the user types. It imports what the first turn needs.
        """
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._pump_events)
            self._tasks.start_soon(self._announce_ended_tasks)
            self._tasks.start_soon(self._keep_status_current)
            self._tasks.start_soon(self.shell_context.keep_git_marks_current, lambda: self._work_started_at is None)
            if warm_up is not None:
                self._tasks.start_soon(self._run_warm_up, warm_up)
            if first is not None:
                self._start_work(first)
            self._refresh_view()
            with self._reading_scope:
                while not isinstance(one := await self.ui.read(), ExitRequested):
                    await self._handle_action(one)
            # The event pump must still run here: a cancelled turn waits until its last events are delivered.
            with anyio.CancelScope(shield=True):
                await self._cancel_pending_work()
            self._tasks.cancel_scope.cancel()
        return self._outcome

    async def run_once(self, entered: EnteredInput) -> bool:
        """Run one input and leave; return whether it succeeded."""
        self._is_single_run = True
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._pump_events)
            self._tasks.start_soon(self._serve_single_run)
            self._work_started_at = time.monotonic()
            self._refresh_view()
            await self._run_work(entered, run_queued=False)
            self._tasks.cancel_scope.cancel()
        return not self.failed

    # --- user actions -------------------------------------------------------------------------------------------

    async def _handle_action(self, one: UserAction) -> None:
        match one:
            case EnteredInput():
                self._handle_entered(one)
            case SteerRequested(entered=entered):
                self._steer_or_queue(entered)
            case InterruptRequested(may_exit=leaves):
                self.interrupt(may_exit=leaves)
            case PlanModeToggled():
                await self.toggle_plan_mode()
            case ThinkingRequested():
                self.ui.show(OutputBlock(self.transcript.last_thought or "Nothing was thought yet."))
            case ExitRequested():
                pass

    def _handle_entered(self, entered: EnteredInput) -> None:
        self._automatic_turns = 0
        if entered.text in _EXIT_WORDS and not entered.parts:
            self.end(Exit())
        elif self._work_started_at is None:
            self._start_work(entered)
        elif (command := self._find_shell_command(entered)) is not None and command.name in self.table.during_turn:
            self._tasks.start_soon(self._run_during_turn, command)
        else:
            self._queue.append(entered)
            self._refresh_view()

    def _steer_or_queue(self, entered: EnteredInput) -> None:
        if entered.is_shell_command:  # the model must not see commands for the system's shell
            self._handle_entered(entered)
            return
        try:
            steer(self.conversation, _to_user_input(entered))
        except StateError:
            self._handle_entered(entered)

    def interrupt(self, *, may_exit: bool = True) -> None:
        """Cancel the running work. When nothing runs, a second interrupt in a row leaves the shell."""
        turn = self.conversation.turn
        if turn is not None:
            turn.scope.cancel()
        elif self._work_scope is not None:
            self._work_scope.cancel()
        elif may_exit:
            now = time.monotonic()
            if now - self._interrupted_at < EXIT_WINDOW_S:
                self.end(Exit())
                return
            self._interrupted_at = now
            self.ui.show(Note("Press Ctrl-C again to leave."))

    async def toggle_plan_mode(self) -> None:
        """Turn plan mode on or off."""
        try:
            await set_plan_mode(self.conversation, not self.conversation.policy.plan)
        except KimiError as error:
            self._report_error(error)
        self._refresh_view()

    def end(self, outcome: SessionOutcome) -> None:
        """End this session with this outcome."""
        self._outcome = outcome
        self._reading_scope.cancel()
        if self._is_single_run:
            self.interrupt(may_exit=False)

    def pop_queued(self) -> EnteredInput | None:
        """Remove the input that was queued last and return it."""
        entered = self._queue.pop() if self._queue else None
        self._refresh_view()
        return entered

    def take_first_queued(self) -> EnteredInput | None:
        """Remove the oldest queued message that the running turn can take and return it."""
        for entered in self._queue:
            if not entered.is_shell_command and (entered.parts or parse_command(entered.text) is None):
                self._queue.remove(entered)
                self._refresh_view()
                return entered
        return None

    # --- work ---------------------------------------------------------------------------------------------------

    def _start_work(self, entered: EnteredInput) -> None:
        self._work_started_at = time.monotonic()
        self._refresh_view()
        self._tasks.start_soon(self._run_work, entered)

    async def _run_work(self, entered: EnteredInput, run_queued: bool = True) -> None:
        outcome: SessionOutcome | None = None
        with anyio.CancelScope() as self._work_scope:
            try:
                outcome = await self._execute(entered)
            except Exception as error:
                self._report_error(error)
        self._work_scope = None
        self._end_work()
        if outcome is not None:
            self.end(outcome)
        elif run_queued and self._queue:
            self._start_work(self._queue.popleft())

    def _end_work(self) -> None:
        took = time.monotonic() - (self._work_started_at or 0.0)
        self._work_started_at = None
        self._refresh_view()
        if took >= self.shell_context.bell_after_s:
            self.ui.ring_bell()

    async def _execute(self, entered: EnteredInput) -> SessionOutcome | None:
        command = self._find_shell_command(entered)
        if command is not None:
            return await self.table.handlers[command.name](self, command.arguments)
        if not os.path.isdir(self._work_dir):
            raise StateError(f"The work directory {self._work_dir} is gone: bring it back, or leave with /exit.")
        if entered.is_shell_command and not _is_agent_command(entered.text):
            await self._run_shell_line(entered.text)
        else:
            await self._run_prompt(_to_user_input(entered))
        return None

    def _find_shell_command(self, entered: EnteredInput) -> Command | None:
        """Return the shell's own command in the input; None when there is none."""
        command = parse_command(entered.text) if not entered.parts else None
        if command is None or command.name not in self.table.handlers:
            return None
        return command if not entered.is_shell_command or command.name in self.table.in_shell_mode else None

    async def _run_during_turn(self, command: Command) -> None:
        try:
            outcome = await self.table.handlers[command.name](self, command.arguments)
        except Exception as error:
            self._report_error(error)
        else:
            if outcome is not None:
                self.end(outcome)

    async def _run_shell_line(self, line: str) -> None:
        shell = self.conversation.resources.require_project().workspace.shell
        self.ui.show(OutputBlock(f"$ {line}"))
        try:
            status = await self.ui.run_program([shell.path, *shell.arguments, line], self._work_dir)
        finally:
            self.shell_context.invalidate_branch()
        if status != 0:
            self.ui.show(Note(f"The command ended with status {status}.", "warning"))

    async def _run_prompt(self, user_input: UserInput) -> None:
        from kimi.application.turn.run_turn import run_turn  # start-up time

        turn = self.conversation.turns.begin()
        self._idle = anyio.Event()
        try:
            status = await run_turn(self.conversation, turn, user_input)
        finally:
            self._idle.set()
        if status.status == "cancelled":
            self.failed = True
            self.ui.show(Note("Interrupted.", "warning"))
        elif status.status == "max_steps_reached":
            self.failed = True
            self.ui.show(Note(f"Max number of steps reached: {status.steps}", "warning"))
        elif status.stop_reason in ("length", "content_filter"):
            self.ui.show(Note(f"The answer was cut off by the model ({status.stop_reason}).", "warning"))
        self.shell_context.invalidate_branch()
        await self.conversation.files.sync()

    def _report_error(self, error: Exception) -> None:
        self.failed = True
        logger.error("a turn or command failed", exc_info=error)
        self.ui.show(*build_error_notes(error))

    async def _cancel_pending_work(self) -> None:
        """Refuse the pending requests, cancel the turn, and wait up to 3 s for its end."""
        # Requests first: from here on new ones are refused at once, so no call that is cancelled waits for the user.
        self.conversation.events.pending_requests.close()
        if (turn := self.conversation.turn) is not None:
            turn.scope.cancel()
        with anyio.move_on_after(3):
            await self._idle.wait()

    async def _serve_single_run(self) -> None:
        """Handle user actions during a single run. Input cannot be queued, because no other work follows."""
        while True:
            match await self.ui.read():
                case InterruptRequested() | ExitRequested():
                    self.interrupt(may_exit=False)
                case SteerRequested(entered=entered) if (
                    self.conversation.turn is not None and not entered.is_shell_command
                ):
                    self._steer_or_queue(entered)
                case EnteredInput() | SteerRequested():
                    self.ui.show(Note("One prompt is answered here; Ctrl-S sends words into its turn.", "warning"))
                case one:
                    await self._handle_action(one)

    # --- events -------------------------------------------------------------------------------------------------

    async def _pump_events(self) -> None:
        try:
            while batch := await self.conversation.events.channel.receive():
                for delivery in batch:
                    self._show_event_safely(delivery.event)
        finally:
            self.conversation.events.channel.close()  # else a turn would wait for its events forever

    def _show_event_safely(self, event: Event) -> None:
        try:
            self._show_event(event)
        except Exception:
            logger.exception("an event could not be shown")

    async def _run_warm_up(self, warm_up: Callable[[], None]) -> None:
        try:
            await anyio.to_thread.run_sync(warm_up, abandon_on_cancel=True)
            start_servers(self.conversation)
        except Exception:  # the first turn imports it again and reports the error
            logger.exception("importing ahead failed")

    async def _announce_ended_tasks(self) -> None:
        """Notify the user of ended background tasks between turns, and go on; a turn does both itself."""
        tasks = self.conversation.resources.background.tasks
        old = {task.id for task in tasks.find_unannounced("llm")} if tasks else set[str]()  # of an earlier run
        self._answered_tasks |= old
        while True:
            await anyio.sleep(POLL_INTERVAL_S)
            if self.conversation.turn is not None or not self.conversation.resources.background.is_available:
                continue
            try:
                await notify_client(self.conversation)
            except StoreFailed:
                logger.exception("a notification could not be stored")
            self._go_on_after_tasks()

    def _go_on_after_tasks(self) -> None:
        """Start a turn for tasks that have ended, unless the user works or writes, or none of them is news."""
        tasks, settings = self.conversation.resources.background.tasks, self.shell_context.settings.background
        if tasks is None or not settings.continue_in_shell or self.conversation.model is None:
            return
        if self._work_started_at is not None or self.ui.has_input or self._automatic_turns >= MAX_AUTOMATIC_TURNS:
            return
        ended = [task for task in tasks.find_unannounced("llm") if task.status in ("completed", "failed")]
        new = [task for task in ended if task.id not in self._answered_tasks]
        if not new:
            return
        self._answered_tasks |= {task.id for task in new}
        self._automatic_turns += 1
        self._start_work(EnteredInput(CONTINUE_PROMPT))

    async def _keep_status_current(self) -> None:
        """Redraw the status bar when the time, the background tasks or the MCP servers change."""
        shown = self._get_status()
        while True:
            await anyio.sleep(POLL_INTERVAL_S)
            if shown != (shown := self._get_status()):
                self._refresh_view()

    def _show_event(self, event: Event) -> None:
        match event:
            case ApprovalRequest() | QuestionRequest():
                self.ui.show(*self.transcript.handle_event(event))
                self._panel_scopes[event.id] = scope = (
                    anyio.CancelScope()
                )  # before its task runs: the request may be resolved first, and that must close the panel
                self._tasks.start_soon(self._resolve_in_panel, event, scope)
            case ToolCallRequest() | HookRequest():
                pass  # this client offers no tools and subscribes to no hooks
            case ApprovalResponse(request_id=request_id):
                self._close_panel(request_id)
            case StatusUpdate():
                self._update_context_usage(event)
            case _:
                if isinstance(event, TurnEnd):
                    for request_id in list(self._panel_scopes):
                        self._close_panel(request_id)
                if blocks := self.transcript.handle_event(event):
                    self.ui.show(*blocks)

    async def _resolve_in_panel(self, request: ApprovalRequest | QuestionRequest, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = await self._ask_user(request)
            except Exception:
                logger.exception("a panel failed; its request is refused")
                answer = build_refusal(request)
            resolve_request(self.conversation, request.id, answer)
        self._panel_scopes.pop(request.id, None)

    async def _ask_user(self, request: ApprovalRequest | QuestionRequest) -> Answer:
        if isinstance(request, ApprovalRequest):
            return build_approval_answer(await self.ui.ask(build_approval_menu(request)))
        return build_question_answer(request, await self.ui.ask_all(build_question_menus(request)))

    def _close_panel(self, request_id: str) -> None:
        if (scope := self._panel_scopes.pop(request_id, None)) is not None:
            scope.cancel()

    def _update_context_usage(self, update: StatusUpdate) -> None:
        if update.context_tokens is not None:
            self.context_usage = update

    def _list_open_blocks(self) -> list[Block]:
        blocks = self.transcript.list_open_blocks()
        if self.shell_context.settings.interface.show_thinking:
            return blocks
        return [ThinkingBlock("") if isinstance(block, ThinkingBlock) else block for block in blocks]

    def _refresh_view(self) -> None:
        self.ui.update(
            LiveView(
                open_blocks=self._list_open_blocks,
                activity=lambda: self.transcript.activity,
                started_at=self._work_started_at,
                queued=tuple(one.text for one in self._queue),
                status=self._get_status,
            )
        )


def _is_agent_command(text: str) -> bool:
    """Whether this is one of the agent's commands that work in shell mode too."""
    command = parse_command(text)
    return command is not None and command.name in _AGENT_COMMANDS_IN_SHELL_MODE


def _to_user_input(entered: EnteredInput) -> UserInput:
    return entered.parts or entered.text
