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
from kimi.application.conversation.pending_requests import build_refusal
from kimi.application.sessions.negotiate_initialize import set_client
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.application.turn.run_turn import run_turn
from kimi.domain.client import Client
from kimi.domain.content.parts import UserInput
from kimi.domain.events.event import REQUEST_TYPES
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import open_conversation
from kimi.interfaces.print.background_wait import wait_for_tasks
from kimi.interfaces.print.failure import EXIT_FAILED, INTERRUPTED, RunFailure, classify_error, classify_turn_status
from kimi.interfaces.print.output import FinalMessageOutput, PrintOutput, encode_failure
from kimi.interfaces.print.prompts import read_prompts
from kimi.interfaces.print.stream_json_output import StreamJsonOutput
from kimi.interfaces.print.text_output import TextOutput
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.graceful_shutdown import (
    EXIT_TIMEOUT_S,
    KILL_RESERVE_S,
    GracefulShutdown,
    exit_by_signal,
    watch_output,
)
from kimi.interfaces.process.process import Streams, mask_secrets, set_session_id
from kimi.interfaces.process.stdio import BlockReader, write_all

logger = logging.getLogger("kimi.print")

_PRINT_CLIENT: Final = Client(supports_question=True, supports_plan_mode=True)
"""Nobody is asked, but the tools that ask have their answer: nobody is there."""


def run_print(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Run what is asked, with nobody there to ask back; gives the exit status (runtime spec 1.4).

    Raises KimiError for what makes a start impossible.
    """
    app = App(settings=providers.Object(settings.model_copy(update={"unattended": True})))
    driver = _PrintDriver(app, flags, streams)
    try:
        status = anyio.run(driver.run)
    except KeyboardInterrupt:
        return driver.handle_early_interrupt()
    if (number := driver.shutdown.exit_signal) is not None:
        exit_by_signal(number)
    return status


def create_output(flags: Flags, conversation: Conversation, *, stdout_is_terminal: bool) -> PrintOutput:
    """The format that was asked for; `terminal` says that stdout is one."""
    as_json = flags.output_format == "stream-json"
    if flags.final_message_only:
        return FinalMessageOutput(as_json=as_json)
    if as_json:
        return StreamJsonOutput()
    return TextOutput(conversation.toolset.key_argument, stdout_is_terminal=stdout_is_terminal)


class _PrintDriver:
    """A run of the print driver: its output, and what has asked it to end."""

    def __init__(self, app: App, flags: Flags, streams: Streams) -> None:
        self._app = app
        self._flags = flags
        self._streams = streams
        self.shutdown = GracefulShutdown(EXIT_TIMEOUT_S, self._cancel_run, self._exit_at_once)
        self._is_output_lost = False
        self._write_error: OSError | None = None
        self._is_handling_signals = False

    def handle_early_interrupt(self) -> int:
        """An interrupt came while no signals were heard; before the first prompt the line about it is still due."""
        if not self._is_handling_signals:
            with suppress(OSError):
                os.write(self._streams.stdout_fd, encode_failure(INTERRUPTED, self._flags.output_format))
        return EXIT_FAILED

    async def run(self) -> int:
        """Everything from the session to the hint at the end; gives the exit status."""
        self._run_scope = anyio.CancelScope()
        choice = SessionSelector(self._flags.session, last=self._flags.continue_last)
        async with open_conversation(self._app, choice, time_left=self._time_left) as conversation:
            set_session_id(conversation.id)
            startup_tuning.end()
            set_client(conversation, _PRINT_CLIENT)
            self._conversation = conversation
            self._output = create_output(
                self._flags, conversation, stdout_is_terminal=os.isatty(self._streams.stdout_fd)
            )
            status = await self._serve_until_end()
            resumable = not conversation.is_empty
        self.shutdown.disarm_watchdog()
        if self._write_error and not isinstance(self._write_error, BrokenPipeError):  # who closes a pipe knows it
            self._streams.write_error(f"The output could not be written: {self._write_error.strerror}\n")
        if resumable:
            self._streams.write_resume_hint(conversation.id)
        return status

    async def _serve_until_end(self) -> int:
        status = EXIT_FAILED
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.shutdown.watch_signals)
            tasks.start_soon(watch_output, self._streams.stdout_fd, self._handle_lost_output)
            tasks.start_soon(self._pump_events)
            await anyio.lowlevel.checkpoint()  # from here on signals are heard, before anything is said
            self._is_handling_signals = True
            with self._run_scope:
                status = await self._run_prompts()
            if self.shutdown.first_signal == signal.SIGINT:
                status = EXIT_FAILED
                with anyio.move_on_after(KILL_RESERVE_S):
                    await self._write(self._output.render_failure(INTERRUPTED))
            tasks.cancel_scope.cancel()
        return EXIT_FAILED if self._write_error else status

    async def _run_prompts(self) -> int:
        """Run the prompts one after the other, to the first that fails; then wait for what they have started."""
        read = BlockReader(self._streams.stdin_fd).read
        terminal = os.isatty(self._streams.stdin_fd)
        limit = self._app.settings().wire.max_line_bytes
        async with aclosing(read_prompts(self._flags, read, stdin_is_terminal=terminal, max_line_bytes=limit)) as given:
            async for user_input in given:
                await self._write(self._output.render_prompt(user_input))
                if (failure := await self._run_turn(user_input)) is not None:
                    await self._write(self._output.render_failure(failure))
                    return failure.exit_status
        return await self._wait_for_tasks()

    async def _run_turn(self, user_input: UserInput) -> RunFailure | None:
        """One turn, with what is written at its end if it ends well."""
        turn = self._conversation.turns.begin()
        try:
            failure = classify_turn_status(await run_turn(self._conversation, turn, user_input))
        except Exception as error:
            failure = classify_error(error)
        await self._conversation.files.sync()
        if failure is None:
            await self._write(self._output.render_end())
            return None
        return replace(failure, message=mask_secrets(failure.message))

    async def _wait_for_tasks(self) -> int:
        if self._flags.input_format != "text" or self._app.settings().background.keep_alive_on_exit:
            return 0
        timed_out = await wait_for_tasks(self._conversation, self._run_follow_up_turn)
        if timed_out is None:
            return 0
        self._streams.write_error(f"{timed_out}\n")
        return EXIT_FAILED

    async def _run_follow_up_turn(self, text: str) -> None:
        """The exit status is that of what was asked: what fails afterwards is a remark."""
        if (failure := await self._run_turn(text)) is not None:
            await self._write(self._output.render_end())
            self._streams.write_error(f"The result of background work was not dealt with: {failure.message}\n")

    async def _pump_events(self) -> None:
        """Write what there is to read about each event; nobody is there to answer, so requests are refused."""
        channel = self._conversation.events.channel
        try:
            while batch := await channel.receive():
                for event, _ in batch:
                    if isinstance(event, REQUEST_TYPES):
                        resolve_request(self._conversation, event.id, build_refusal(event))
                await self._write(b"".join(self._output.render_event(event) for event, _ in batch))
        finally:
            channel.close()  # a turn waits for its events to be written

    async def _write(self, data: bytes) -> None:
        if not data or self._is_output_lost:
            return
        try:
            await write_all(self._streams.stdout_fd, data)
        except OSError as error:
            self._write_error = error
            logger.info("stdout cannot be written: %s", error.strerror)
            self._handle_lost_output()

    def _handle_lost_output(self) -> None:
        """Nobody reads any more: what runs is cancelled, and the end is bounded as after a signal."""
        self._is_output_lost = True
        self.shutdown.arm_watchdog()
        self._cancel_run()

    def _cancel_run(self) -> None:
        self._run_scope.cancel()

    def _time_left(self) -> float:
        """Seconds that the hooks of the end may take: as many as they want, unless the end was asked for."""
        if self._is_output_lost or self.shutdown.first_signal is not None:
            return self.shutdown.time_left() - KILL_RESERVE_S
        return math.inf

    def _exit_at_once(self) -> None:
        if self.shutdown.exit_signal is not None:
            exit_by_signal(self.shutdown.exit_signal)
        os._exit(EXIT_FAILED)
