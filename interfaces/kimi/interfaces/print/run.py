"""Run `kimi --print`: prompts from the command line or stdin, answers on stdout (runtime spec 1.7)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

import anyio

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
from kimi.domain.turn import format_usage
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import open_conversation
from kimi.interfaces.print.background_wait import wait_for_tasks
from kimi.interfaces.print.failure import EXIT_FAILED, INTERRUPTED, RunFailure, classify_error, classify_turn_status
from kimi.interfaces.print.output import FinalMessageOutput, PrintOutput, encode_failure
from kimi.interfaces.print.prompts import read_prompts
from kimi.interfaces.print.stream_json_output import StreamJsonOutput
from kimi.interfaces.print.text_output import TextOutput
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.log import mask_secrets
from kimi.interfaces.process.stdio import BlockReader, write_all
from kimi.interfaces.process.streams import Streams

logger = logging.getLogger("kimi.print")

_EXIT_RULES: Final = ExitRules(timeout_status=EXIT_FAILED)

LAST_LINES_S: Final = 0.9
"""Seconds that the reader has to take the last lines after a signal."""

_PRINT_CLIENT: Final = Client(supports_question=True, supports_plan_mode=True)
"""The tools that ask the user are offered, but their requests are refused because there is no user."""


def run_print(flags: Flags, settings: Settings, streams: Streams) -> int:
    """Run all prompts without a user to answer requests; return the exit status (runtime spec 1.4).

    Raises KimiError when the run cannot start.
    """
    app = App(settings=providers.Object(settings.model_copy(update={"unattended": True})))
    process = DriverProcess(streams, _EXIT_RULES)
    selector = SessionSelector(flags.session, last=flags.continue_last)
    opening = open_conversation(app, selector, time_left=process.time_left)
    try:
        return process.run_conversation(
            opening, lambda conversation: _PrintDriver(app, flags, process, conversation).run()
        )
    except KeyboardInterrupt:
        if not process.is_watching:  # before the driver watches signals, it writes no failure
            with suppress(OSError):
                os.write(streams.stdout_fd, encode_failure(INTERRUPTED, flags.output_format))
        return EXIT_FAILED


def create_output(flags: Flags, conversation: Conversation, *, stdout_is_terminal: bool) -> PrintOutput:
    """Return the output in the format of the flags."""
    as_json = flags.output_format == "stream-json"
    if flags.final_message_only:
        return FinalMessageOutput(as_json=as_json, stdout_is_terminal=stdout_is_terminal)
    if as_json:
        return StreamJsonOutput(stdout_is_terminal=stdout_is_terminal)
    return TextOutput(conversation.toolset.key_argument, stdout_is_terminal=stdout_is_terminal)


class _PrintStdout:
    """Writes to stdout without a queue. After the reader has gone, writes do nothing."""

    def __init__(self, fd: int, on_lost: Callable[[], None]) -> None:
        self._fd = fd
        self._on_lost = on_lost
        self._is_lost = False
        self.error: OSError | None = None
        self.is_write_stuck = False
        """Whether a write is in progress; after the end of the run, that it was never read."""

    async def write(self, data: bytes) -> None:
        """Write all bytes; wait until the reader takes them."""
        if not data or self._is_lost:
            return
        self.is_write_stuck = True  # stays set on cancellation: the write goes on in its thread
        try:
            await write_all(self._fd, data)
        except OSError as error:
            self.error = error
            logger.info("stdout cannot be written: %s", error.strerror)
            self.fail()
        self.is_write_stuck = False

    def fail(self) -> None:
        """End the output, because its reader has gone."""
        self._is_lost = True
        self._on_lost()


class _PrintDriver:
    """One run of print mode on a conversation."""

    def __init__(self, app: App, flags: Flags, process: DriverProcess, conversation: Conversation) -> None:
        self._app = app
        self._flags = flags
        self._process = process
        self._conversation = conversation
        set_client(conversation, _PRINT_CLIENT)
        stdout_fd = process.streams.stdout_fd
        self._output = create_output(flags, conversation, stdout_is_terminal=os.isatty(stdout_fd))
        self._stdout = _PrintStdout(stdout_fd, self._end)
        self._run_scope = anyio.CancelScope()

    async def run(self) -> int:
        """Run all prompts and wait for their background tasks; return the exit status."""
        status = EXIT_FAILED
        async with self._process.watch(self._run_scope.cancel, self._stdout) as tasks:
            tasks.start_soon(self._pump_events)
            with self._run_scope:
                status = await self._run_prompts()
            is_interrupted = self._process.shutdown.first_signal == signal.SIGINT
            if is_interrupted:
                status = EXIT_FAILED
            with anyio.move_on_after(LAST_LINES_S if self._process.shutdown.has_begun else None):
                if is_interrupted:
                    await self._stdout.write(self._output.render_failure(INTERRUPTED))
                if not self._conversation.is_empty:
                    await self._stdout.write(self._output.render_session(self._conversation.id))
        self._write_cost()
        if (error := self._stdout.error) is None:
            return status
        if not isinstance(error, BrokenPipeError):  # the user closed the pipe: no error to report
            self._process.streams.write_error(f"The output could not be written: {error.strerror}\n")
        return EXIT_FAILED

    def _write_cost(self) -> None:
        """Tell a person who reads the text what the session has cost, if that is known."""
        used = self._conversation.models.usage.figures.session
        if self._flags.output_format == "text" and not self._flags.final_message_only and used.cost is not None:
            self._process.streams.write_error(f"Tokens of this session: {format_usage(used)}\n")

    def _end(self) -> None:
        """Cancel the run, because its output is not read. The time to end is limited as after a signal."""
        self._process.shutdown.begin()
        self._run_scope.cancel()

    async def _run_prompts(self) -> int:
        """Run the prompts in order until one fails; then wait for the background tasks that they have started."""
        read = BlockReader(self._process.streams.stdin_fd).read  # the end of stdin does not end the run
        terminal = os.isatty(self._process.streams.stdin_fd)
        limit = self._app.settings().wire.max_line_bytes
        async with aclosing(
            read_prompts(self._flags, read, stdin_is_terminal=terminal, max_line_bytes=limit)
        ) as inputs:
            async for user_input in inputs:
                await self._stdout.write(self._output.render_prompt(user_input))
                if (failure := await self._run_turn(user_input)) is not None:
                    await self._stdout.write(self._output.render_failure(failure))
                    return failure.exit_status
        return await self._wait_for_tasks()

    async def _run_turn(self, user_input: UserInput) -> RunFailure | None:
        """Run one turn and write its end if it succeeded; return its failure, without secrets."""
        turn = self._conversation.turns.begin()
        try:
            failure = classify_turn_status(await run_turn(self._conversation, turn, user_input))
        except Exception as error:
            failure = classify_error(error)
        await self._conversation.files.sync()
        if failure is None:
            await self._stdout.write(self._output.render_end())
            return None
        return replace(failure, message=mask_secrets(failure.message))

    async def _wait_for_tasks(self) -> int:
        if self._flags.input_format != "text" or self._app.settings().background.keep_alive_on_exit:
            return 0
        timed_out = await wait_for_tasks(self._conversation, self._run_follow_up_turn)
        if timed_out is None:
            return 0
        self._process.streams.write_error(f"{timed_out}\n")
        return EXIT_FAILED

    async def _run_follow_up_turn(self, text: str) -> None:
        """Run a turn about an ended task. A failure is only reported: the exit status is that of the prompts."""
        if (failure := await self._run_turn(text)) is not None:
            await self._stdout.write(self._output.render_end())
            self._process.streams.write_error(f"The result of background work was not dealt with: {failure.message}\n")

    async def _pump_events(self) -> None:
        """Write the output of each event, and refuse requests, because there is no user to answer them."""
        channel = self._conversation.events.channel
        try:
            while batch := await channel.receive():
                for event, _ in batch:
                    if isinstance(event, REQUEST_TYPES):
                        resolve_request(self._conversation, event.id, build_refusal(event))
                await self._stdout.write(b"".join(self._output.render_event(event) for event, _ in batch))
        finally:
            channel.close()  # else a turn would wait for its events forever
