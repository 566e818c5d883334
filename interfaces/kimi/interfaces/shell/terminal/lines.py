"""The front for screen readers and dumb terminals: lines in, lines out, no cursor movement, no colour."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from kimi.interfaces.shell.panels import Menu, Picked, Tabs
from kimi.interfaces.shell.render.blocks import Block
from kimi.interfaces.shell.render.plain import plain_text
from kimi.interfaces.shell.render.sanitize import neutral, one_line
from kimi.interfaces.shell.terminal.terminal_lease import Loan, LocalCommand
from kimi.interfaces.shell.terminal.terminal_ui import Entered, Input, Left, Setup, View

PROMPT = "> "


class LinesFront:
    """Reads lines of stdin, writes lines to stdout. A line that ends in a backslash goes on in the next one, one that
    begins with an exclamation mark is a command of the system's shell.
    """

    interactive = False

    def __init__(self) -> None:
        self._sent, self._inputs = anyio.create_memory_object_stream[str | None](math.inf)
        self._asking: anyio.Event | None = None
        self._line = ""
        self._turn = anyio.Lock()
        self._busy = False
        self._prompted = False
        self.loan = Loan()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Lines are read while this is open."""
        async with BlockingPortal() as portal:
            threading.Thread(target=self._read_lines, args=(portal,), daemon=True).start()
            yield

    def _read_lines(self, portal: BlockingPortal) -> None:
        """A daemon thread: a blocked read never holds up the end of the program."""
        whole: list[str] = []
        with suppress(RuntimeError):  # the program has ended meanwhile
            for line in _typed_lines():
                text = line.rstrip("\r\n")
                if text.endswith("\\"):
                    whole.append(text[:-1])
                    continue
                portal.call(self._sent.send_nowait, "\n".join([*whole, text]))
                whole = []
            portal.call(self._sent.send_nowait, None)

    def begin(self, setup: Setup) -> None:
        """Nothing completes here."""

    async def read(self) -> Input:
        """The next line; the end of the input leaves."""
        while True:
            self._prompt()
            line = await self._inputs.receive()
            self._prompted = False
            if line is None:
                return Left()
            if self._asking is not None:
                self._line = line
                self._asking.set()
                self._asking = None
            elif line.startswith("!") and line[1:].strip():
                return Entered(line[1:].strip(), shell=True)
            elif line.strip():
                return Entered(line.strip())

    def show(self, *blocks: Block) -> None:
        """Write blocks as lines."""
        self._begin_line()
        self._write("".join(map(plain_text, blocks)))

    def update(self, view: View) -> None:
        """Only the prompt depends on what runs."""
        self._busy = view.since is not None
        self._prompt()

    async def ask(self, menu: Menu) -> Picked | None:
        """List the options with numbers and read one; an empty line means no."""
        async with self._turn:
            self._begin_line()
            self._write(_menu_text(menu))
            while True:
                text = (await self._ask_line()).strip()
                if not text:
                    return None
                numbers = text.replace(",", " ").split()
                if menu.toggle and text == "a":
                    return Picked((), toggled=True)
                if not all(one.isdecimal() and 1 <= int(one) <= len(menu.options) for one in numbers):
                    self._write("Please type a number of the list, or nothing to cancel.\n")
                    continue
                positions = tuple(int(one) - 1 for one in numbers)[: None if menu.multi else 1]
                if any(menu.options[at].wants_text for at in positions):
                    self._write("In your own words: ")
                    return Picked(positions, (await self._ask_line()).strip())
                return Picked(positions)

    async def ask_all(self, tabs: Tabs) -> tuple[Picked, ...] | None:
        """One after the other."""
        answers: list[Picked] = []
        for menu in tabs.menus:
            picked = await self.ask(menu)
            if picked is None:
                return None
            answers.append(picked)
        return tuple(answers)

    async def _ask_line(self) -> str:
        asking = self._asking = anyio.Event()
        try:
            await asking.wait()
        finally:
            if self._asking is asking:
                self._asking = None
        return self._line

    def prefill(self, text: str) -> None:
        """A line cannot be filled in: it is shown instead."""
        self._begin_line()
        self._write(f"You had written: {neutral(text)}\n")

    def bell(self) -> None:
        """Ring."""
        self._write("\a")

    def set_theme(self, name: str) -> None:
        """There are no colours."""

    async def run_local(self, command: Sequence[str], work_dir: str) -> int:
        """Run a program on this terminal."""
        local = LocalCommand(command, work_dir, with_input=False)
        with self.loan.give():
            try:
                return await anyio.to_thread.run_sync(local.run, abandon_on_cancel=True)
            finally:
                await local.ended()

    def _prompt(self) -> None:
        if not self._busy and self._asking is None and not self._prompted:
            self._write(PROMPT)
            self._prompted = True

    def _begin_line(self) -> None:
        if self._prompted:
            self._write("\n")
            self._prompted = False

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        with suppress(OSError):  # a terminal that went away; what runs is ended in order all the same
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stdout.flush()


def _typed_lines() -> Iterator[str]:
    """Lines of stdin until it ends, or its terminal goes away."""
    with suppress(OSError):
        yield from iter(sys.stdin.readline, "")


def _menu_text(menu: Menu) -> str:
    lines = [one_line(menu.title, 400)]
    if menu.preview is not None:
        lines.append(plain_text(menu.preview).rstrip("\n"))
    elif menu.detail:
        lines.append(neutral(menu.detail))
    for number, option in enumerate(menu.options, start=1):
        lines.append(
            f"  {number}. {one_line(option.label)}{f' - {one_line(option.description)}' if option.description else ''}"
        )
    hint = "Type a number" + (" (or several)" if menu.multi else "") + ", or nothing to cancel"
    lines.append(hint + (f"; a: {menu.toggle}" if menu.toggle else "") + ":")
    return "\n".join(lines) + "\n"
