"""One session in the shell: what the person does becomes turns and commands, events become blocks and panels."""

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
from kimi.application.conversation.pending_requests import refusal
from kimi.application.sessions.open_session import Choice
from kimi.application.step.notifications import POLL_S, tell_client
from kimi.domain.command import Command, CommandInfo, parse_command
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import KimiError, StateError, StoreFailed
from kimi.domain.events.event import ApprovalResponse, Event, StatusUpdate, TurnEnd
from kimi.domain.events.request import Answer, ApprovalRequest, HookRequest, QuestionRequest, ToolCallRequest
from kimi.interfaces.shell.failures import failure_note
from kimi.interfaces.shell.panels import approval_answer, approval_menu, question_answer, question_tabs
from kimi.interfaces.shell.render.blocks import Block, Note, Output, Thinking
from kimi.interfaces.shell.render.status import Status
from kimi.interfaces.shell.render.transcript import Transcript
from kimi.interfaces.shell.shell_context import Place
from kimi.interfaces.shell.terminal.terminal_ui import (
    Entered,
    Front,
    Input,
    Interrupted,
    Left,
    PlanToggled,
    Steered,
    ThoughtAsked,
    View,
)

logger = logging.getLogger(__name__)

LEAVE_WINDOW_S: Final = 2.0
"""Within how many seconds the second Ctrl-C leaves."""
_AGENT_COMMANDS_IN_SHELL_MODE: Final = frozenset({"export", "import"})
_LEAVING: Final = frozenset({"exit", "quit", "/exit", "/quit"})


@dataclass(frozen=True, slots=True)
class Leave:
    """The shell ends with this status."""

    status: int = 0


@dataclass(frozen=True, slots=True)
class GoOn:
    """Another session takes over; `prefill` goes into its input, `reload`: everything configured is read again."""

    choice: Choice
    prefill: str = ""
    reload: bool = False


Outcome: TypeAlias = Leave | GoOn
ShellCommand: TypeAlias = Callable[["ShellSession", str], Awaitable["Outcome | None"]]
"""A command of the shell itself: gets the session and what stands behind its name."""


@dataclass(frozen=True, slots=True)
class CommandTable:
    """The commands of the shell: how they are listed, what they do, which may run beside a turn or in shell mode."""

    infos: tuple[CommandInfo, ...] = ()
    run: dict[str, ShellCommand] = field(default_factory=dict[str, ShellCommand])
    beside: frozenset[str] = frozenset()
    in_shell_mode: frozenset[str] = frozenset()


class ShellSession:
    """The state of one session in the shell: what runs, what waits, what was used of the context."""

    def __init__(
        self,
        conversation: Conversation,
        front: Front,
        table: CommandTable,
        status: Callable[[], Status],
        place: Place,
    ) -> None:
        self.conversation = conversation
        self.front = front
        self.table = table
        self.context = StatusUpdate(context_tokens=0)
        self.transcript = Transcript(conversation.toolset.key_argument, time.monotonic, place.settings.work_dir)
        self.place = place
        self._status = status
        self._work_dir = place.settings.work_dir
        self._queue: deque[Entered] = deque()
        self._since: float | None = None
        self._work_scope: anyio.CancelScope | None = None
        self._panels: dict[str, anyio.CancelScope] = {}
        self._interrupted_at = -LEAVE_WINDOW_S
        self._reading = anyio.CancelScope()
        self._once = False
        self._outcome: Outcome = Leave()
        self._idle = anyio.Event()
        self._idle.set()
        self.failed = False

    async def run(self, first: Entered | None = None, warm_up: Callable[[], None] | None = None) -> Outcome:
        """Serve the person until they leave or want another session. `first` is done as if it had been entered.

        `warm_up` imports in a thread, while the person types, what the first turn needs.
        """
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._pump)
            self._tasks.start_soon(self._tell_of_tasks)
            self._tasks.start_soon(self._keep_status)
            if warm_up is not None:
                self._tasks.start_soon(self._import_ahead, warm_up)
            if first is not None:
                self._start(first)
            self._refresh()
            with self._reading:
                while not isinstance(one := await self.front.read(), Left):
                    await self._take(one)
            with anyio.CancelScope(shield=True):
                await self._wind_down()
            self._tasks.cancel_scope.cancel()
        return self._outcome

    async def run_once(self, entered: Entered) -> bool:
        """Do one thing and leave; gives whether it went well."""
        self._once = True
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._pump)
            self._tasks.start_soon(self._serve_meanwhile)
            self._since = time.monotonic()
            self._refresh()
            await self._work(entered, go_on=False)
            self._tasks.cancel_scope.cancel()
        return not self.failed

    # --- what the person does -----------------------------------------------------------------------------------

    async def _take(self, one: Input) -> None:
        match one:
            case Entered():
                self._enter(one)
            case Steered(entered=entered):
                self._steer(entered)
            case Interrupted(leaves=leaves):
                self.interrupt(leaves=leaves)
            case PlanToggled():
                await self.toggle_plan()
            case ThoughtAsked():
                self.front.show(Output(self.transcript.last_thought or "Nothing was thought yet."))
            case Left():
                pass

    def _enter(self, entered: Entered) -> None:
        if entered.text in _LEAVING and not entered.parts:
            self.leave(Leave())
        elif self._since is None:
            self._start(entered)
        elif (command := self._shell_command(entered)) is not None and command.name in self.table.beside:
            self._tasks.start_soon(self._run_beside, command)
        else:
            self._queue.append(entered)
            self._refresh()

    def _steer(self, entered: Entered) -> None:
        if entered.shell:  # what is for the system's shell is none of the model's business
            self._enter(entered)
            return
        try:
            steer(self.conversation, _as_input(entered))
        except StateError:
            self._enter(entered)

    def interrupt(self, *, leaves: bool = True) -> None:
        """Cancel what runs; with nothing to cancel, twice in a row means leaving."""
        turn = self.conversation.turn
        if turn is not None:
            turn.scope.cancel()
        elif self._work_scope is not None:
            self._work_scope.cancel()
        elif leaves:
            now = time.monotonic()
            if now - self._interrupted_at < LEAVE_WINDOW_S:
                self.leave(Leave())
                return
            self._interrupted_at = now
            self.front.show(Note("Press Ctrl-C again to leave."))

    async def toggle_plan(self) -> None:
        """Switch plan mode."""
        try:
            await set_plan_mode(self.conversation, not self.conversation.policy.plan)
        except KimiError as error:
            self._fail(error)
        self._refresh()

    def leave(self, outcome: Outcome) -> None:
        """End this session with this outcome."""
        self._outcome = outcome
        self._reading.cancel()
        if self._once:
            self.interrupt(leaves=False)

    def unqueue(self) -> Entered | None:
        """Take back what was queued last."""
        entered = self._queue.pop() if self._queue else None
        self._refresh()
        return entered

    # --- work ---------------------------------------------------------------------------------------------------

    def _start(self, entered: Entered) -> None:
        self._since = time.monotonic()
        self._refresh()
        self._tasks.start_soon(self._work, entered)

    async def _work(self, entered: Entered, go_on: bool = True) -> None:
        outcome: Outcome | None = None
        with anyio.CancelScope() as self._work_scope:
            try:
                outcome = await self._do(entered)
            except Exception as error:
                self._fail(error)
        self._work_scope = None
        self._end_work()
        if outcome is not None:
            self.leave(outcome)
        elif go_on and self._queue:
            self._start(self._queue.popleft())

    def _end_work(self) -> None:
        took = time.monotonic() - (self._since or 0.0)
        self._since = None
        self._refresh()
        if took >= self.place.bell_after_s:
            self.front.bell()

    async def _do(self, entered: Entered) -> Outcome | None:
        command = self._shell_command(entered)
        if command is not None:
            return await self.table.run[command.name](self, command.arguments)
        if not os.path.isdir(self._work_dir):
            raise StateError(f"The work directory {self._work_dir} is gone: bring it back, or leave with /exit.")
        if entered.shell and not _is_for_agent(entered.text):
            await self._run_locally(entered.text)
        else:
            await self._prompt(_as_input(entered))
        return None

    def _shell_command(self, entered: Entered) -> Command | None:
        """The command of the shell itself that was typed, if it was one."""
        command = parse_command(entered.text) if not entered.parts else None
        if command is None or command.name not in self.table.run:
            return None
        return command if not entered.shell or command.name in self.table.in_shell_mode else None

    async def _run_beside(self, command: Command) -> None:
        try:
            outcome = await self.table.run[command.name](self, command.arguments)
        except Exception as error:
            self._fail(error)
        else:
            if outcome is not None:
                self.leave(outcome)

    async def _run_locally(self, line: str) -> None:
        shell = self.conversation.project().workspace.shell
        self.front.show(Output(f"$ {line}"))
        try:
            status = await self.front.run_local([shell.path, *shell.arguments, line], self._work_dir)
        finally:
            self.place.look_again()
        if status != 0:
            self.front.show(Note(f"The command ended with status {status}.", "warning"))

    async def _prompt(self, user_input: UserInput) -> None:
        from kimi.application.turn.run_turn import run_turn  # start-up time

        turn = self.conversation.begin_turn()
        self._idle = anyio.Event()
        try:
            status = await run_turn(self.conversation, turn, user_input)
        finally:
            self._idle.set()
        if status.status == "cancelled":
            self.failed = True
            self.front.show(Note("Interrupted.", "warning"))
        elif status.status == "max_steps_reached":
            self.failed = True
            self.front.show(Note(f"Max number of steps reached: {status.steps}", "warning"))
        elif status.stop_reason in ("length", "content_filter"):
            self.front.show(Note(f"The answer was cut off by the model ({status.stop_reason}).", "warning"))
        self.place.look_again()
        await self.conversation.files.sync()

    def _fail(self, error: Exception) -> None:
        self.failed = True
        logger.error("a turn or command failed", exc_info=error)
        self.front.show(*failure_note(error))

    async def _wind_down(self) -> None:
        """Settle what waits, let the turn end."""
        self.conversation.waiting.close()
        if (turn := self.conversation.turn) is not None:
            turn.scope.cancel()
        with anyio.move_on_after(3):
            await self._idle.wait()

    async def _serve_meanwhile(self) -> None:
        """What the person does while the only thing runs that is done: nothing can wait for its end."""
        while True:
            match await self.front.read():
                case Interrupted() | Left():
                    self.interrupt(leaves=False)
                case Steered(entered=entered) if self.conversation.turn is not None and not entered.shell:
                    self._steer(entered)
                case Entered() | Steered():
                    self.front.show(Note("One prompt is answered here; Ctrl-S sends words into its turn.", "warning"))
                case one:
                    await self._take(one)

    # --- what the agent does ------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        try:
            while batch := await self.conversation.channel.receive():
                for delivery in batch:
                    self._show_safely(delivery.event)
        finally:
            self.conversation.channel.close()  # a turn waits for its events to be looked at

    def _show_safely(self, event: Event) -> None:
        try:
            self._show(event)
        except Exception:
            logger.exception("an event could not be shown")

    async def _import_ahead(self, warm_up: Callable[[], None]) -> None:
        try:
            await anyio.to_thread.run_sync(warm_up, abandon_on_cancel=True)
            start_servers(self.conversation)
        except Exception:  # whoever needs it will import it again, and report
            logger.exception("importing ahead failed")

    async def _tell_of_tasks(self) -> None:
        """Between turns too the person hears when a background task has ended; a turn tells by itself."""
        while True:
            await anyio.sleep(POLL_S)
            if self.conversation.turn is not None or not self.conversation.background.available:
                continue
            try:
                await tell_client(self.conversation)
            except StoreFailed:
                logger.exception("a notification could not be stored")

    async def _keep_status(self) -> None:
        """The status bar changes by itself too: the time, tasks, servers."""
        shown = self._status()
        while True:
            await anyio.sleep(POLL_S)
            if shown != (shown := self._status()):
                self._refresh()

    def _show(self, event: Event) -> None:
        match event:
            case ApprovalRequest() | QuestionRequest():
                self.front.show(*self.transcript.take(event))
                self._panels[event.id] = scope = anyio.CancelScope()  # before its task runs: what is settled is closed
                self._tasks.start_soon(self._ask, event, scope)
            case ToolCallRequest() | HookRequest():
                pass  # this client offers no tools and subscribes to no hooks
            case ApprovalResponse(request_id=request_id):
                self._close_panel(request_id)
            case StatusUpdate():
                self._note_status(event)
            case _:
                if isinstance(event, TurnEnd):
                    for request_id in list(self._panels):
                        self._close_panel(request_id)
                if blocks := self.transcript.take(event):
                    self.front.show(*blocks)

    async def _ask(self, request: ApprovalRequest | QuestionRequest, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = await self._answer(request)
            except Exception:
                logger.exception("a panel failed; its request is refused")
                answer = refusal(request)
            resolve_request(self.conversation, request.id, answer)
        self._panels.pop(request.id, None)

    async def _answer(self, request: ApprovalRequest | QuestionRequest) -> Answer:
        if isinstance(request, ApprovalRequest):
            return approval_answer(await self.front.ask(approval_menu(request)))
        return question_answer(request, await self.front.ask_all(question_tabs(request)))

    def _close_panel(self, request_id: str) -> None:
        if (scope := self._panels.pop(request_id, None)) is not None:
            scope.cancel()

    def _note_status(self, update: StatusUpdate) -> None:
        if update.context_tokens is not None:
            self.context = update

    def _open_blocks(self) -> list[Block]:
        blocks = self.transcript.open_blocks()
        if self.place.settings.interface.show_thinking:
            return blocks
        return [Thinking("") if isinstance(block, Thinking) else block for block in blocks]

    def _refresh(self) -> None:
        self.front.update(
            View(
                open_blocks=self._open_blocks,
                activity=lambda: self.transcript.activity,
                since=self._since,
                queued=tuple(one.text for one in self._queue),
                status=self._status,
            )
        )


def _is_for_agent(text: str) -> bool:
    """Is this one of the agent's commands that work in shell mode too?"""
    command = parse_command(text)
    return command is not None and command.name in _AGENT_COMMANDS_IN_SHELL_MODE


def _as_input(entered: Entered) -> UserInput:
    return entered.parts or entered.text
