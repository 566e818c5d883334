"""The front on a real terminal: an input that stays live below, finished blocks above in the scrollback.

Blocks are printed once. What is still open is drawn again at most ten times a second, and all that belongs together
goes to the terminal in one write: nothing flickers.
"""

from __future__ import annotations

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
import anyio.to_thread
from anyio.abc import TaskGroup
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import DummyCompleter, ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import merge_key_bindings
from prompt_toolkit.output import ColorDepth, Output, create_output

from kimi.interfaces.shell.panels import Menu, Picked, Tabs
from kimi.interfaces.shell.render.blocks import Block
from kimi.interfaces.shell.render.paint import ColorSystem, Painter, ThemeName, duration
from kimi.interfaces.shell.render.plain import plain_text
from kimi.interfaces.shell.render.sanitize import cut, one_line
from kimi.interfaces.shell.render.status import status_parts
from kimi.interfaces.shell.terminal.complete import InputCompleter, is_command_name
from kimi.interfaces.shell.terminal.editor import edited
from kimi.interfaces.shell.terminal.keys import input_keys
from kimi.interfaces.shell.terminal.layout import STYLES, Parts, screen_layout
from kimi.interfaces.shell.terminal.output import HeldOutput
from kimi.interfaces.shell.terminal.panel_view import PanelView
from kimi.interfaces.shell.terminal.paste import Pasted, as_image, read_image
from kimi.interfaces.shell.terminal.terminal_lease import Loan, LocalCommand
from kimi.interfaces.shell.terminal.terminal_ui import (
    Entered,
    Input,
    Interrupted,
    Left,
    PlanToggled,
    Setup,
    Steered,
    ThoughtAsked,
    View,
)

logger = logging.getLogger(__name__)

REDRAW_S: Final = 0.1
"""Seconds between two drawings of what is open, at least."""
LOW_WINDOW: Final = 16
"""Rows below which a panel has the window for itself."""
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_DEPTHS: Final[Mapping[ColorSystem | None, ColorDepth]] = {
    None: ColorDepth.DEPTH_1_BIT,
    "standard": ColorDepth.DEPTH_4_BIT,
    "256": ColorDepth.DEPTH_8_BIT,
    "truecolor": ColorDepth.DEPTH_24_BIT,
}


class Screen:
    """A person at a terminal. `colour` None: no colours; `work_dir` is where `@` names files."""

    interactive = True
    _beside: TaskGroup

    def __init__(
        self,
        *,
        work_dir: str,
        history: History,
        pasted: Pasted,
        colour: ColorSystem | None,
        theme: ThemeName,
        output: Output | None = None,
    ) -> None:
        self._work_dir = work_dir
        self._pasted = pasted
        self._setup = Setup()
        self._view = View()
        self._painter = Painter(80, colour, theme)
        self._pending: list[Block] = []
        self._live: StyleAndTextTuples = []
        self._live_height = 0
        self._spin = 0
        self._shell_mode = False
        self.loan = Loan()
        self._notice = ""
        self._sent, self._inputs = anyio.create_memory_object_stream[Input](math.inf)
        self.buffer = Buffer(multiline=True, history=history, completer=DummyCompleter(), complete_while_typing=True)
        self._typed_at = 0.0
        self._started, self._ended = anyio.Event(), anyio.Event()
        self.buffer.on_text_changed += self._note_typing
        self._output = output or _terminal_output()
        self.panel = PanelView(
            self._painter,
            self._panel_room,
            self._panel_changed,
            self.show,
            self._interrupt_panel,
            lambda: self._typed_at,
        )
        self._app = self._application(_DEPTHS[colour], theme)

    def _application(self, depth: ColorDepth, theme: ThemeName) -> Application[None]:
        free = Condition(lambda: not self.panel.shown)
        typing = Condition(lambda: self._app.layout.has_focus(self.buffer))
        running = Condition(lambda: self._view.since is not None)
        parts = Parts(
            live=lambda: self._live,
            live_height=lambda: self._live_height,
            queued=self._queued_lines,
            sign=self._sign,
            status=self._status,
            notice=lambda: self._notice,
        )
        app = Application[None](
            layout=screen_layout(self.buffer, self.panel, parts, free),
            key_bindings=merge_key_bindings([input_keys(self, typing, running), self.panel.keys]),
            style=STYLES[theme],
            output=self._output,
            color_depth=depth,
            erase_when_done=True,
        )
        app.ttimeoutlen = 0.1
        app.timeoutlen = 0.3
        app.after_render += self._rendered
        self.panel.attach(app, self.buffer)
        return app

    # --- life ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """The terminal belongs to the screen while this is open; it is given back in order whatever happens."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            tasks.start_soon(self._tick)
            await self._started.wait()
            try:
                async with anyio.create_task_group() as self._beside:
                    yield
                    self._beside.cancel_scope.cancel()
            finally:
                self._flush()
                if self._app.is_running:
                    self._app.exit()
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await self._ended.wait()
                tasks.cancel_scope.cancel()

    async def _run(self) -> None:
        try:
            await self._app.run_async(self._started.set, handle_sigint=False, set_exception_handler=False)
        except EOFError:
            logger.info("the terminal went away")
        finally:
            self._release()
            self._started.set()
            self._ended.set()
            self._sent.send_nowait(Left())

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(REDRAW_S if self._busy else REDRAW_S * 3)
            if self._busy or self._pending:
                self._spin += 1
                self._flush()

    @property
    def _busy(self) -> bool:
        return self._view.since is not None

    # --- the front ----------------------------------------------------------------------------------------------

    def begin(self, setup: Setup) -> None:
        """A session begins: its commands and files complete from now on."""
        self._setup = setup
        completions = setup.completions
        self.buffer.completer = ThreadedCompleter(
            InputCompleter(completions.commands, completions.files, self._work_dir)
        )

    async def read(self) -> Input:
        """The next thing that the person does."""
        return await self._inputs.receive()

    def show(self, *blocks: Block) -> None:
        """Print blocks for good: at once, or with the next drawing while something runs."""
        self._pending += blocks
        if not self._busy:
            self._flush()

    def update(self, view: View) -> None:
        """Show this beside the scrollback from now on."""
        changed = (view.since is None) != (self._view.since is None)
        self._view = view
        if changed or view.since is None:
            self._flush()

    async def ask(self, menu: Menu) -> Picked | None:
        """Let the person choose; one panel at a time."""
        self._flush()
        return await self.panel.ask(menu)

    async def ask_all(self, tabs: Tabs) -> tuple[Picked, ...] | None:
        """Several questions, each under a tab."""
        self._flush()
        return await self.panel.ask_all(tabs)

    def prefill(self, text: str) -> None:
        """Put text into the input."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)
        self._redraw()

    def bell(self) -> None:
        """Ring."""
        self._output.bell()
        self._output.flush()

    async def run_local(self, command: Sequence[str], work_dir: str) -> int:
        """Give the terminal to a program until it ends; what there is to show meanwhile waits."""
        from prompt_toolkit.application import run_in_terminal

        local = LocalCommand(command, work_dir, with_input=True)
        self._flush()
        self._release()
        try:
            with self.loan.give():
                try:
                    return await run_in_terminal(local.run, in_executor=True)
                finally:
                    await local.ended()
        finally:
            self._flush()

    def set_theme(self, name: str) -> None:
        """Other colours from now on."""
        theme: ThemeName = "light" if name == "light" else "dark"
        self._painter.set_theme(theme)
        self._app.style = STYLES[theme]
        self._redraw()

    # --- drawing ------------------------------------------------------------------------------------------------

    def _size(self) -> tuple[int, int]:
        size = self._output.get_size()
        return size.columns, size.rows

    def _flush(self) -> None:
        """Print what is final, draw what is open; later, while a program has the terminal."""
        if self.loan.given:
            return
        columns, rows = self._size()
        self._painter.width = columns
        blocks, self._pending = self._pending, []
        text = self._paint(blocks)
        self._draw_open(columns, rows)
        if text:
            self._print(text)
        self._redraw()

    def _paint(self, blocks: Sequence[Block]) -> str:
        """The blocks in colour, or plain where that fails: what was said is never lost."""
        try:
            return self._painter.paint(*blocks)
        except Exception:
            logger.exception("blocks could not be drawn")
            return "".join(map(plain_text, blocks))

    def _print(self, text: str) -> None:
        if self._app.is_running:
            if isinstance(self._output, HeldOutput):
                self._output.held = True  # until it is drawn again: one write for all
            self._app.renderer.erase()
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()

    def _rendered(self, app: Application[None]) -> None:
        self._release()

    def _release(self) -> None:
        if isinstance(self._output, HeldOutput) and self._output.held:
            self._output.held = False
            self._output.flush()

    def _redraw(self) -> None:
        if self._app.is_running:
            self._app.invalidate()

    def _draw_open(self, columns: int, rows: int) -> None:
        room = _live_room(rows, self.panel.shown) if self._busy else 0
        text = self._paint(self._view.open_blocks()) if room else ""
        lines = [line for line in text.split("\n")[-room - 1 :] if line.strip()][-room:]
        if not room or (self.panel.shown and not lines):
            self._live, self._live_height = [], 0
            return
        since = self._view.since or 0.0
        activity = "Waiting for you" if self.panel.shown else self._view.activity() or "Working"
        spinner = f"{_SPINNER[self._spin % len(_SPINNER)]} {activity} {duration(time.monotonic() - since)}"
        hint = "  Ctrl-C interrupts" if columns >= 50 else ""
        self._live = [
            *to_formatted_text(ANSI("\n".join(lines) + "\n" if lines else "")),
            ("class:spinner", cut(spinner, columns)),
            ("class:tip", hint),
        ]
        self._live_height = len(lines) + 1

    def _panel_changed(self) -> None:
        self._draw_open(*self._size())
        self._redraw()

    def _panel_room(self) -> tuple[int, int]:
        """What is left for a panel: below it stand a notice and the status bar."""
        columns, rows = self._size()
        return columns, rows - self._live_height - len(self._queued_lines()) - 1 - bool(self._notice)

    def _queued_lines(self) -> Sequence[str]:
        queued = self._view.queued
        if not queued:
            return ()
        columns, _ = self._size()
        head = f"{len(queued)} queued, ↑ takes the last one back"
        return [cut(line, columns) for line in (head, *(f"  › {one_line(text)}" for text in queued[-3:]))]

    def _sign(self) -> tuple[str, str]:
        status = self._view.status()
        if self._shell_mode:
            return "class:sign.shell", "$ "
        if status.plan:
            return "class:sign.plan", "◇ "
        return ("class:sign.thinking", "✻ ") if status.thinking else ("class:sign", "› ")

    def _status(self) -> StyleAndTextTuples:
        status = replace(self._view.status(), shell=self._shell_mode)
        columns, _ = self._size()
        return [(style, text) for style, text in status_parts(status, columns)]

    # --- what keys do -------------------------------------------------------------------------------------------

    def submit(self, *, steer: bool = False) -> None:
        """Enter: send what was typed, or take the completion that is marked."""
        if self._takes_completion():
            return
        text = self.buffer.text
        if not text.strip():
            return
        whole = self._pasted.expand(text).strip()
        entered = Entered(whole, self._pasted.parts(text), self._shell_mode)
        self.buffer.history.append_string(whole)
        self.buffer.reset()
        self._typed_at = 0.0
        self._notice = ""
        self._send(Steered(entered) if steer else entered)

    def _takes_completion(self) -> bool:
        state = self.buffer.complete_state
        if state is None or not state.completions:
            return False
        chosen = state.current_completion
        if chosen is None:
            typed = self.buffer.text
            if not is_command_name(typed) or self._is_command(typed[1:]):
                return False
            chosen = state.completions[0]
        self.buffer.apply_completion(chosen)
        self.buffer.cancel_completion()
        return True

    def _is_command(self, name: str) -> bool:
        """Is this the whole name of a command, or another name of it? Then there is nothing left to complete."""
        return any(name in (info.name, *info.aliases) for info in self._setup.completions.commands())

    def _note_typing(self, buffer: Buffer) -> None:
        self._typed_at = time.monotonic() if buffer.text else 0.0

    def interrupt(self) -> None:
        """Ctrl-C: stop what runs, else clear the input, else perhaps leave."""
        if self.buffer.text and not self._busy:
            self.buffer.reset()
            return
        self._send(Interrupted())

    def _interrupt_panel(self) -> None:
        self._send(Interrupted(leaves=False))

    def leave(self) -> None:
        """Ctrl-D."""
        self._send(Left())

    def toggle_shell(self) -> None:
        """Ctrl-X."""
        self._shell_mode = not self._shell_mode
        self._redraw()

    def toggle_plan(self) -> None:
        """Shift-Tab."""
        self._send(PlanToggled())

    def show_thought(self) -> None:
        """Ctrl-T."""
        self._send(ThoughtAsked())

    def recall(self) -> bool:
        """Up, on an empty input: take back what was queued last."""
        if self.buffer.text or not self._view.queued or (entered := self._setup.unqueue()) is None:
            return False
        self._shell_mode = entered.shell
        self.prefill(entered.text)
        return True

    def paste(self, text: str) -> None:
        """Text of the terminal's clipboard; the path of a picture is taken as the picture."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        path = text.strip().strip("'\"").replace("\\ ", " ")
        if path.startswith("/") and "\n" not in path and self._setup.takes_images():
            image = read_image(path)
            if image is not None:
                self.buffer.insert_text(self._pasted.add_image(image))
                return
        self.buffer.insert_text(self._pasted.fold(text))

    def paste_image(self) -> None:
        """Ctrl-V: a picture of the system's clipboard."""
        if self._setup.takes_images():
            self._beside.start_soon(self._safely, self._paste_image)
        else:
            self._notify("The model cannot see images.")

    async def _paste_image(self) -> None:
        from kimi.interfaces.shell.terminal.clipboard import clipboard_image

        data = await anyio.to_thread.run_sync(clipboard_image, os.environ, abandon_on_cancel=True)
        image = as_image(data) if data else None
        if image is None:
            self._notify("There is no image in the clipboard, or no program that could read it.")
            return
        self.buffer.insert_text(self._pasted.add_image(image))

    def edit(self) -> None:
        """Ctrl-O: change the input in an editor; a turn goes on meanwhile."""
        self._beside.start_soon(self._safely, self._edit)

    async def _edit(self) -> None:
        text, fault = await edited(self._setup.editor(), self._pasted.expand(self.buffer.text), self._run_editor)
        if fault:
            self._notify(fault)
        elif text is not None:
            self.prefill(text)

    async def _run_editor(self, command: Sequence[str]) -> int:
        return await self.run_local(command, self._work_dir)

    async def _safely(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:
            logger.exception("what a key asked for failed")
            self._notify("This failed; the log has the details (/debug).")

    def _notify(self, text: str) -> None:
        self._notice = text
        self._redraw()

    def _send(self, one: Input) -> None:
        try:
            self._sent.send_nowait(one)
        except anyio.BrokenResourceError:
            logger.warning("a key was lost: %s", type(one).__name__)


def _live_room(rows: int, beside_panel: bool) -> int:
    """Rows for what is open; a panel needs most of the window, and all of a low one."""
    if beside_panel:
        return min(rows // 4, 8) if rows >= LOW_WINDOW else 0
    return max(2, min(rows // 2, 16))


def _terminal_output() -> Output:
    if sys.platform == "win32":
        return create_output()
    return HeldOutput.of(sys.stdout, os.environ.get("TERM"))
