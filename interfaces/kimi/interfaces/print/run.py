"""`kimi --print`: prompts from the command line or stdin, answers on stdout, then the end (runtime spec 1.7)."""

from __future__ import annotations

import logging
import math
import os
import signal
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

import anyio
import anyio.lowlevel

from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.pending_requests import refusal
from kimi.application.sessions.negotiate_initialize import hidden_tools
from kimi.application.sessions.open_session import Choice
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.application.turn.run_turn import run_turn
from kimi.domain.client import Client
from kimi.domain.content.parts import UserInput
from kimi.domain.events.event import REQUEST_TYPES
from kimi.interfaces.bootstrap.containers import App, open_conversation
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.print.background_tasks import wait_for_tasks
from kimi.interfaces.print.failure import FAILED, INTERRUPTED, Failure, failure_in, failure_of
from kimi.interfaces.print.messages import Messages
from kimi.interfaces.print.output import FinalMessage, Output, failure_line
from kimi.interfaces.print.prompts import prompts
from kimi.interfaces.print.text import Text
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import EXIT_BOUND_S, KILLING_S, Stopping, end_by, watch_output
from kimi.interfaces.process.process import Streams, masked, set_session_id
from kimi.interfaces.process.stdio import BlockReader, write_all

logger = logging.getLogger("kimi.print")

_PROGRAM: Final = Client(supports_question=True, supports_plan_mode=True)
"""Nobody is asked, but the tools that ask have their answer: nobody is there."""


def run_print(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Run what is asked, with nobody there to ask back; gives the exit status (runtime spec 1.4).

    Raises KimiError for what makes a start impossible.
    """
    app = App(settings=providers.Object(settings.model_copy(update={"unattended": True})))
    driver = _Print(app, flags, streams)
    try:
        status = anyio.run(driver.run)
    except KeyboardInterrupt:
        return driver.interrupted_early()
    if (number := driver.stopping.ended_by) is not None:
        end_by(number)
    return status


def output_for(flags: Flags, conversation: Conversation, *, terminal: bool) -> Output:
    """The format that was asked for; `terminal` says that stdout is one."""
    as_json = flags.output_format == "stream-json"
    if flags.final_message_only:
        return FinalMessage(as_json=as_json)
    if as_json:
        return Messages()
    return Text(conversation.toolset.key_argument, terminal=terminal)


class _Print:
    """A run of the print driver: its output, and what has asked it to end."""

    def __init__(self, app: App, flags: Flags, streams: Streams) -> None:
        self._app = app
        self._flags = flags
        self._streams = streams
        self.stopping = Stopping(EXIT_BOUND_S, self._stop, self._give_up)
        self._broken = False
        self._unwritten: OSError | None = None
        self._listening = False

    def interrupted_early(self) -> int:
        """An interrupt came while no signals were heard; before the first prompt the line about it is still due."""
        if not self._listening:
            with suppress(OSError):
                os.write(self._streams.stdout_fd, failure_line(INTERRUPTED, self._flags.output_format))
        return FAILED

    async def run(self) -> int:
        """Everything from the session to the hint at the end; gives the exit status."""
        self._running = anyio.CancelScope()
        choice = Choice(self._flags.session, last=self._flags.continue_last)
        async with open_conversation(self._app, choice, time_left=self._time_left) as conversation:
            set_session_id(conversation.id)
            startup_tuning.end()
            conversation.client = _PROGRAM
            conversation.toolset.hidden = hidden_tools(_PROGRAM)
            self._conversation = conversation
            self._output = output_for(self._flags, conversation, terminal=os.isatty(self._streams.stdout_fd))
            status = await self._serve_until_end()
            resumable = not conversation.is_empty
        self.stopping.release()
        if self._unwritten and not isinstance(self._unwritten, BrokenPipeError):  # who closes a pipe knows it
            self._streams.write_error(f"The output could not be written: {self._unwritten.strerror}\n")
        if resumable:
            self._streams.tell_how_to_resume(conversation.id)
        return status

    async def _serve_until_end(self) -> int:
        status = FAILED
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.stopping.watch_signals)
            tasks.start_soon(watch_output, self._streams.stdout_fd, self._lose_output)
            tasks.start_soon(self._pump)
            await anyio.lowlevel.checkpoint()  # from here on signals are heard, before anything is said
            self._listening = True
            with self._running:
                status = await self._serve()
            if self.stopping.signal == signal.SIGINT:
                status = FAILED
                with anyio.move_on_after(KILLING_S):
                    await self._write(self._output.failure(INTERRUPTED))
            tasks.cancel_scope.cancel()
        return FAILED if self._unwritten else status

    async def _serve(self) -> int:
        """Run the prompts one after the other, to the first that fails; then wait for what they have started."""
        read = BlockReader(self._streams.stdin_fd).read
        terminal = os.isatty(self._streams.stdin_fd)
        limit = self._app.settings().wire.max_line_bytes
        async with aclosing(prompts(self._flags, read, terminal=terminal, max_line_bytes=limit)) as given:
            async for user_input in given:
                await self._write(self._output.prompt(user_input))
                if (failure := await self._turn(user_input)) is not None:
                    await self._write(self._output.failure(failure))
                    return failure.status
        return await self._wait_for_tasks()

    async def _turn(self, user_input: UserInput) -> Failure | None:
        """One turn, with what is written at its end if it ends well."""
        turn = self._conversation.begin_turn()
        try:
            failure = failure_in(await run_turn(self._conversation, turn, user_input))
        except Exception as error:
            failure = failure_of(error)
        await self._conversation.files.sync()
        if failure is None:
            await self._write(self._output.end())
            return None
        return replace(failure, message=masked(failure.message))

    async def _wait_for_tasks(self) -> int:
        if self._flags.input_format != "text" or self._app.settings().background.keep_alive_on_exit:
            return 0
        timed_out = await wait_for_tasks(self._conversation, self._run_after_task)
        if timed_out is None:
            return 0
        self._streams.write_error(f"{timed_out}\n")
        return FAILED

    async def _run_after_task(self, text: str) -> None:
        """The exit status is that of what was asked: what fails afterwards is a remark."""
        if (failure := await self._turn(text)) is not None:
            await self._write(self._output.end())
            self._streams.write_error(f"The result of background work was not dealt with: {failure.message}\n")

    async def _pump(self) -> None:
        """Write what there is to read about each event; nobody is there to answer, so requests are refused."""
        channel = self._conversation.channel
        try:
            while batch := await channel.receive():
                for event, _ in batch:
                    if isinstance(event, REQUEST_TYPES):
                        resolve_request(self._conversation, event.id, refusal(event))
                await self._write(b"".join(self._output.event(event) for event, _ in batch))
        finally:
            channel.close()  # a turn waits for its events to be written

    async def _write(self, data: bytes) -> None:
        if not data or self._broken:
            return
        try:
            await write_all(self._streams.stdout_fd, data)
        except OSError as error:
            self._unwritten = error
            logger.info("stdout cannot be written: %s", error.strerror)
            self._lose_output()

    def _lose_output(self) -> None:
        """Nobody reads any more: what runs is cancelled, and the end is bounded as after a signal."""
        self._broken = True
        self.stopping.bound_exit()
        self._stop()

    def _stop(self) -> None:
        self._running.cancel()

    def _time_left(self) -> float:
        """Seconds that the hooks of the end may take: as many as they want, unless the end was asked for."""
        if self._broken or self.stopping.signal is not None:
            return self.stopping.time_left() - KILLING_S
        return math.inf

    def _give_up(self) -> None:
        if self.stopping.ended_by is not None:
            end_by(self.stopping.ended_by)
        os._exit(FAILED)
