"""The terminal UI for screen readers and dumb terminals: lines in and out, no cursor movement, no colour."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from kimi.interfaces.shell.panels import Menu, MenuSelection, TabbedMenus
from kimi.interfaces.shell.render.blocks import Block
from kimi.interfaces.shell.render.plain_blocks import format_block
from kimi.interfaces.shell.render.sanitize import fit_one_line, neutralize
from kimi.interfaces.shell.terminal.terminal_lease import LocalProgram, TerminalLease
from kimi.interfaces.shell.terminal.terminal_ui import EnteredInput, ExitRequested, LiveView, SessionUISetup, UserAction

PROMPT = "> "


class LineTerminalUI:
    """Reads lines of stdin and writes lines to stdout.

    A line that ends in a backslash continues in the next one. A line that begins with an exclamation mark is a command
    for the system's shell.
    """

    is_interactive = False

    def __init__(self) -> None:
        self._line_sender, self._line_receiver = anyio.create_memory_object_stream[str | None](math.inf)
        self._answer_ready: anyio.Event | None = None
        self._answer_line = ""
        self._ask_lock = anyio.Lock()
        self._busy = False
        self._prompted = False
        self.lease = TerminalLease()

    @asynccontextmanager
    async def terminal_lifespan(self) -> AsyncGenerator[None, None]:
        """Read lines while the context is open."""
        async with BlockingPortal() as portal:
            threading.Thread(target=self._read_lines, args=(portal,), daemon=True).start()
            yield

    def _read_lines(self, portal: BlockingPortal) -> None:
        """Read stdin in a daemon thread, so that a blocked read does not delay the exit."""
        whole: list[str] = []
        with suppress(RuntimeError):  # the portal is closed: the program has ended
            for line in _read_stdin_lines():
                text = line.rstrip("\r\n")
                if text.endswith("\\"):
                    whole.append(text[:-1])
                    continue
                portal.call(self._line_sender.send_nowait, "\n".join([*whole, text]))
                whole = []
            portal.call(self._line_sender.send_nowait, None)

    @property
    def has_input(self) -> bool:
        """Whether the user has begun to write: the system has the line until it is complete."""
        return False

    def copy(self, text: str) -> bool:
        """Nothing: such a terminal gets lines only."""
        return False

    def begin_session(self, setup: SessionUISetup) -> None:
        """Do nothing: there is no completion."""

    async def read(self) -> UserAction:
        """Return the next line as an action, the end of the input as an exit. Lines that answer a menu go to it."""
        while True:
            self._show_prompt()
            line = await self._line_receiver.receive()
            self._prompted = False
            if line is None:
                return ExitRequested()
            if self._answer_ready is not None:
                self._answer_line = line
                self._answer_ready.set()
                self._answer_ready = None
            elif line.startswith("!") and line[1:].strip():
                return EnteredInput(line[1:].strip(), is_shell_command=True)
            elif line.strip():
                return EnteredInput(line.strip())

    def show(self, *blocks: Block) -> None:
        """Write blocks as lines."""
        self._start_new_line()
        self._write("".join(map(format_block, blocks)))

    def update(self, view: LiveView) -> None:
        """Show the prompt when nothing runs."""
        self._busy = view.started_at is not None
        self._show_prompt()

    async def ask(self, menu: Menu) -> MenuSelection | None:
        """List the options with numbers and read a choice; an empty line dismisses the menu."""
        async with self._ask_lock:
            self._start_new_line()
            self._write(_format_menu(menu))
            while True:
                text = (await self._read_answer()).strip()
                if not text:
                    return None
                numbers = text.replace(",", " ").split()
                if menu.toggle_label and text == "a":
                    return MenuSelection((), toggled=True)
                if not all(one.isdecimal() and 1 <= int(one) <= len(menu.options) for one in numbers):
                    self._write("Please type a number of the list, or nothing to cancel.\n")
                    continue
                positions = tuple(int(one) - 1 for one in numbers)[: None if menu.multi else 1]
                if any(menu.options[at].wants_text for at in positions):
                    self._write("In your own words: ")
                    return MenuSelection(positions, (await self._read_answer()).strip())
                return MenuSelection(positions)

    async def ask_all(self, tabs: TabbedMenus) -> tuple[MenuSelection, ...] | None:
        """Ask one menu after the other."""
        answers: list[MenuSelection] = []
        for menu in tabs.menus:
            picked = await self.ask(menu)
            if picked is None:
                return None
            answers.append(picked)
        return tuple(answers)

    async def _read_answer(self) -> str:
        # `read` has the only receiver of lines. It hands the next line over while this event is set here.
        asking = self._answer_ready = anyio.Event()
        try:
            await asking.wait()
        finally:
            if self._answer_ready is asking:
                self._answer_ready = None
        return self._answer_line

    def prefill(self, text: str) -> None:
        """Show the text, because a line cannot be prefilled."""
        self._start_new_line()
        self._write(f"You had written: {neutralize(text)}\n")

    def ring_bell(self) -> None:
        """Ring the terminal's bell."""
        self._write("\a")

    def set_theme(self, name: str) -> None:
        """Do nothing: there are no colours."""

    async def run_program(self, command: Sequence[str], work_dir: str) -> int:
        """Run a program on this terminal, without input; return its status."""
        local = LocalProgram(command, work_dir, with_input=False)
        with self.lease.hold():
            try:
                return await anyio.to_thread.run_sync(local.run, abandon_on_cancel=True)
            finally:
                await local.ensure_ended()

    def _show_prompt(self) -> None:
        if not self._busy and self._answer_ready is None and not self._prompted:
            self._write(PROMPT)
            self._prompted = True

    def _start_new_line(self) -> None:
        if self._prompted:
            self._write("\n")
            self._prompted = False

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        with suppress(OSError):  # a terminal that went away: the running work must still end in order
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stdout.flush()


def _read_stdin_lines() -> Iterator[str]:
    """Yield lines of stdin until it ends or its terminal goes away."""
    with suppress(OSError):
        yield from iter(sys.stdin.readline, "")


def _format_menu(menu: Menu) -> str:
    lines = [fit_one_line(menu.title, 400)]
    if menu.preview is not None:
        lines.append(format_block(menu.preview).rstrip("\n"))
    elif menu.detail:
        lines.append(neutralize(menu.detail))
    for number, option in enumerate(menu.options, start=1):
        lines.append(
            f"  {number}. {fit_one_line(option.label)}"
            f"{f' - {fit_one_line(option.description)}' if option.description else ''}"
        )
    hint = "Type a number" + (" (or several)" if menu.multi else "") + ", or nothing to cancel"
    lines.append(hint + (f"; a: {menu.toggle_label}" if menu.toggle_label else "") + ":")
    return "\n".join(lines) + "\n"
