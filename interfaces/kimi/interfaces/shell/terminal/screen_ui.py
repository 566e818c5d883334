"""The terminal UI on a real terminal: a live input at the bottom, finished blocks above it in the scrollback.

Blocks are printed once. Open blocks are redrawn at most ten times a second, and one frame is one write, so that
nothing flickers.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import merge_key_bindings
from prompt_toolkit.output import ColorDepth, Output, create_output

from kimi.interfaces.shell.panels import Menu, MenuSelection, TabbedMenus
from kimi.interfaces.shell.render.blocks import Block
from kimi.interfaces.shell.render.painter import ColorSystem, Painter, ThemeName, format_duration
from kimi.interfaces.shell.render.plain_blocks import format_block
from kimi.interfaces.shell.render.sanitize import fit_one_line, truncate_to_width
from kimi.interfaces.shell.render.status import fit_status_parts
from kimi.interfaces.shell.terminal.deferred_output import DeferredOutput
from kimi.interfaces.shell.terminal.input.input_line import InputLine
from kimi.interfaces.shell.terminal.input.pasted_content import PastedContent
from kimi.interfaces.shell.terminal.key_bindings import create_input_bindings
from kimi.interfaces.shell.terminal.layout import STYLES, ScreenParts, build_screen_layout
from kimi.interfaces.shell.terminal.panel_view import PanelView
from kimi.interfaces.shell.terminal.terminal_lease import LocalProgram, TerminalLease
from kimi.interfaces.shell.terminal.terminal_ui import (
    ExitRequested,
    InterruptRequested,
    LiveView,
    SessionUISetup,
    UserAction,
)

logger = logging.getLogger(__name__)

REDRAW_S: Final = 0.1
"""The least number of seconds between two drawings of the open blocks."""
MIN_SHARED_ROWS: Final = 16
"""In a window with fewer rows a panel hides the open blocks."""
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_DEPTHS: Final[Mapping[ColorSystem | None, ColorDepth]] = {
    None: ColorDepth.DEPTH_1_BIT,
    "standard": ColorDepth.DEPTH_4_BIT,
    "256": ColorDepth.DEPTH_8_BIT,
    "truecolor": ColorDepth.DEPTH_24_BIT,
}


class ScreenTerminalUI:
    """The drawn terminal UI. `colour` None means no colours; `@` completes to files of `work_dir`.

    `setup` holds until a session begins.
    """

    is_interactive = True
    _key_action_tasks: TaskGroup

    def __init__(
        self,
        setup: SessionUISetup,
        *,
        work_dir: str,
        history: History,
        pasted: PastedContent,
        colour: ColorSystem | None,
        theme: ThemeName,
        output: Output | None = None,
    ) -> None:
        self._view = LiveView()
        self._painter = Painter(80, colour, theme)
        self._pending: list[Block] = []
        self._live: StyleAndTextTuples = []
        self._live_height = 0
        self._spin = 0
        self.lease = TerminalLease()
        self._notice = ""
        self._action_sender, self._action_receiver = anyio.create_memory_object_stream[UserAction](math.inf)
        self.input = InputLine(self, setup, work_dir=work_dir, history=history, pasted=pasted)
        self._started, self._ended = anyio.Event(), anyio.Event()
        self._output = output or _create_terminal_output()
        self.panel = PanelView(
            self._painter,
            self._available_panel_size,
            self._on_panel_changed,
            self.show,
            self._interrupt_panel,
            lambda: self.input.typed_at,
        )
        self._app = self._create_application(_DEPTHS[colour], theme)

    def _create_application(self, depth: ColorDepth, theme: ThemeName) -> Application[None]:
        free = Condition(lambda: not self.panel.is_shown)
        typing = Condition(lambda: self._app.layout.has_focus(self.input.buffer))
        running = Condition(lambda: self._view.started_at is not None)
        parts = ScreenParts(
            live=lambda: self._live,
            live_height=lambda: self._live_height,
            queued=self._format_queued_lines,
            prompt_sign=self._prompt_sign,
            status=self._render_status,
            notice=lambda: self._notice,
        )
        app = Application[None](
            layout=build_screen_layout(self.input.buffer, self.panel, parts, free),
            key_bindings=merge_key_bindings([create_input_bindings(self.input, typing, running), self.panel.keys]),
            style=STYLES[theme],
            output=self._output,
            color_depth=depth,
            erase_when_done=True,
        )
        app.ttimeoutlen = 0.1
        app.timeoutlen = 0.3
        app.after_render += self._on_rendered
        self.panel.attach(app, self.input.buffer)
        return app

    # --- lifespan -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def terminal_lifespan(self) -> AsyncGenerator[None, None]:
        """Own the terminal while the context is open, and restore it on leaving."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_application)
            tasks.start_soon(self._redraw_periodically)
            await self._started.wait()
            try:
                async with anyio.create_task_group() as self._key_action_tasks:
                    yield
                    self._key_action_tasks.cancel_scope.cancel()
            finally:
                # Print before the application ends; the shield lets it restore the terminal on cancellation.
                self._flush_blocks()
                if self._app.is_running:
                    self._app.exit()
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await self._ended.wait()
                tasks.cancel_scope.cancel()

    async def _run_application(self) -> None:
        try:
            await self._app.run_async(self._started.set, handle_sigint=False, set_exception_handler=False)
        except EOFError:
            logger.info("the terminal went away")
        finally:
            self._release_output()
            self._started.set()  # it may have failed before it started: nothing may wait for it then
            self._ended.set()
            self._action_sender.send_nowait(ExitRequested())

    async def _redraw_periodically(self) -> None:
        while True:
            await anyio.sleep(REDRAW_S if self.is_busy else REDRAW_S * 3)
            if self.is_busy or self._pending:
                self._spin += 1
                self._flush_blocks()

    @property
    def is_busy(self) -> bool:
        """Whether a turn or command runs."""
        return self._view.started_at is not None

    @property
    def has_input(self) -> bool:
        """Whether the user has begun to write."""
        return bool(self.input.buffer.text)

    @property
    def has_queued(self) -> bool:
        """Whether input waits for the end of the turn."""
        return bool(self._view.queued)

    # --- TerminalUI ---------------------------------------------------------------------------------------------

    def begin_session(self, setup: SessionUISetup) -> None:
        """Complete the commands and files of a new session from now on."""
        self.input.use_setup(setup)
        if self._app.is_running:
            with set_app(self._app):
                self.input.complete_again()

    async def read(self) -> UserAction:
        """Return the next action of the user."""
        return await self._action_receiver.receive()

    def show(self, *blocks: Block) -> None:
        """Print blocks to the scrollback: at once, or with the next drawing while a turn or command runs."""
        self._pending += blocks
        if not self.is_busy:
            self._flush_blocks()

    def update(self, view: LiveView) -> None:
        """Show this view below the scrollback from now on."""
        changed = (view.started_at is None) != (self._view.started_at is None)
        self._view = view
        if changed or view.started_at is None:
            self._flush_blocks()

    async def ask(self, menu: Menu) -> MenuSelection | None:
        """Let the user choose in a panel, after the panels before it."""
        self._flush_blocks()
        return await self.panel.ask(menu)

    async def ask_all(self, tabs: TabbedMenus) -> tuple[MenuSelection, ...] | None:
        """Let the user answer several menus, each under a tab."""
        self._flush_blocks()
        return await self.panel.ask_all(tabs)

    def prefill(self, text: str) -> None:
        """Put text into the input."""
        self.input.prefill(text)

    def ring_bell(self) -> None:
        """Ring the terminal's bell."""
        self._output.bell()
        self._output.flush()

    def copy(self, text: str) -> bool:
        """Ask the terminal to put text into the clipboard (OSC 52)."""
        self._output.write_raw(f"\x1b]52;c;{base64.b64encode(text.encode('utf-8', 'replace')).decode()}\x07")
        self._output.flush()
        return True

    async def run_program(self, command: Sequence[str], work_dir: str) -> int:
        """Run a program on the terminal and return its status. Blocks that arrive meanwhile are printed after it."""
        from prompt_toolkit.application import run_in_terminal

        local = LocalProgram(command, work_dir, with_input=True)
        # Print before the lease: while it is held, `_flush_blocks` does nothing, so that no frame disturbs the program.
        self._flush_blocks()
        self._release_output()
        try:
            with self.lease.hold():
                try:
                    return await run_in_terminal(local.run, in_executor=True)
                finally:
                    await local.ensure_ended()
        finally:
            self._flush_blocks()

    def set_theme(self, name: str) -> None:
        """Use the colours of this theme from now on."""
        theme: ThemeName = "light" if name == "light" else "dark"
        self._painter.set_theme(theme)
        self._app.style = STYLES[theme]
        self.redraw()

    # --- drawing ------------------------------------------------------------------------------------------------

    def _terminal_size(self) -> tuple[int, int]:
        size = self._output.get_size()
        return size.columns, size.rows

    def _flush_blocks(self) -> None:
        """Print the pending blocks and draw the open ones. Does nothing while a program has the terminal."""
        if self.lease.is_held:
            return
        columns, rows = self._terminal_size()
        self._painter.width = columns
        blocks, self._pending = self._pending, []
        text = self._paint_blocks(blocks)
        self._draw_open_blocks(columns, rows)
        if text:
            self._print_text(text)
        self.redraw()

    def _paint_blocks(self, blocks: Sequence[Block]) -> str:
        """Paint blocks in colour, or as plain text when that fails, so that no content is lost."""
        try:
            return self._painter.paint(*blocks)
        except Exception:
            logger.exception("blocks could not be drawn")
            return "".join(map(format_block, blocks))

    def _print_text(self, text: str) -> None:
        if self._app.is_running:
            if isinstance(self._output, DeferredOutput):
                self._output.is_deferred = True  # until the next rendering, which releases it: one write for all
            self._app.renderer.erase()  # so that the text lands in the scrollback; it is drawn again below
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()

    def _on_rendered(self, app: Application[None]) -> None:
        self._release_output()

    def _release_output(self) -> None:
        if isinstance(self._output, DeferredOutput) and self._output.is_deferred:
            self._output.is_deferred = False
            self._output.flush()

    def redraw(self) -> None:
        """Draw the screen soon."""
        if self._app.is_running:
            self._app.invalidate()

    def _draw_open_blocks(self, columns: int, rows: int) -> None:
        room = _max_live_rows(rows, self.panel.is_shown) if self.is_busy else 0
        text = self._paint_blocks(self._view.open_blocks()) if room else ""
        lines = [line for line in text.split("\n")[-room - 1 :] if line.strip()][-room:]
        if not room or (self.panel.is_shown and not lines):
            self._live, self._live_height = [], 0
            return
        since = self._view.started_at or 0.0
        activity = "Waiting for you" if self.panel.is_shown else self._view.activity() or "Working"
        spinner = f"{_SPINNER[self._spin % len(_SPINNER)]} {activity} {format_duration(time.monotonic() - since)}"
        hint = "  Ctrl-C interrupts" if columns >= 50 else ""
        self._live = [
            *to_formatted_text(ANSI("\n".join(lines) + "\n" if lines else "")),
            ("class:spinner", truncate_to_width(spinner, columns)),
            ("class:tip", hint),
        ]
        self._live_height = len(lines) + 1

    def _on_panel_changed(self) -> None:
        self._draw_open_blocks(*self._terminal_size())
        self.redraw()

    def _available_panel_size(self) -> tuple[int, int]:
        """Return the columns and rows left for a panel, above the notice and the status bar."""
        columns, rows = self._terminal_size()
        return columns, rows - self._live_height - len(self._format_queued_lines()) - 1 - bool(self._notice)

    def _format_queued_lines(self) -> Sequence[str]:
        queued = self._view.queued
        if not queued:
            return ()
        columns, _ = self._terminal_size()
        head = f"{len(queued)} queued, ↑ takes the last one back"
        return [
            truncate_to_width(line, columns) for line in (head, *(f"  › {fit_one_line(text)}" for text in queued[-3:]))
        ]

    def _prompt_sign(self) -> tuple[str, str]:
        status = self._view.status()
        if self.input.is_shell_mode:
            return "class:sign.shell", "$ "
        if status.plan:
            return "class:sign.plan", "◇ "
        return ("class:sign.thinking", "✻ ") if status.thinking else ("class:sign", "› ")

    def _render_status(self) -> StyleAndTextTuples:
        status = replace(self._view.status(), shell=self.input.is_shell_mode)
        columns, _ = self._terminal_size()
        return [(style, text) for style, text in fit_status_parts(status, columns)]

    # --- what the input asks for --------------------------------------------------------------------------------

    def _interrupt_panel(self) -> None:
        self.send_action(InterruptRequested(may_exit=False))

    def start_action(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run what a key asked for; a failure is told and logged."""
        self._key_action_tasks.start_soon(self._run_safely, work)

    async def _run_safely(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:
            logger.exception("what a key asked for failed")
            self.show_notice("This failed; the log has the details (/debug).")

    def show_notice(self, text: str) -> None:
        """Show one line above the status bar; an empty text removes it."""
        self._notice = text
        self.redraw()

    def send_action(self, one: UserAction) -> None:
        """Let the session read this action."""
        try:
            self._action_sender.send_nowait(one)
        except anyio.BrokenResourceError:
            logger.warning("a key was lost: %s", type(one).__name__)


def _max_live_rows(rows: int, beside_panel: bool) -> int:
    """Return the rows for open blocks. A panel needs most of the window, and all of a low one."""
    if beside_panel:
        return min(rows // 4, 8) if rows >= MIN_SHARED_ROWS else 0
    return max(2, min(rows // 2, 16))


def _create_terminal_output() -> Output:
    if sys.platform == "win32":
        return create_output()
    return DeferredOutput.for_terminal(sys.stdout, os.environ.get("TERM"))
