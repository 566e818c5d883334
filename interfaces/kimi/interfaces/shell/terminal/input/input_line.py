"""The input at the bottom of the screen, and what its keys do (runtime spec 8)."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio.to_thread
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, DummyCompleter, ThreadedCompleter
from prompt_toolkit.history import History

from kimi.domain.command import CommandInfo
from kimi.interfaces.shell.terminal.input.completion import InputCompleter, is_command_name, needs_arguments
from kimi.interfaces.shell.terminal.input.editor import edit_text
from kimi.interfaces.shell.terminal.input.pasted_content import PastedContent, parse_image, read_image
from kimi.interfaces.shell.terminal.terminal_ui import (
    EnteredInput,
    ExitRequested,
    InterruptRequested,
    PlanModeToggled,
    SessionUISetup,
    SteerRequested,
    ThinkingRequested,
    UserAction,
)

NOTHING_TO_PASTE: Final = "There is nothing in the clipboard that can be pasted, or no program that could read it."
NO_PICTURES: Final = "The model cannot see images."


class InputScreen(Protocol):
    """What the input needs of the screen that it is on."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn or command runs."""
        ...

    @property
    def has_queued(self) -> bool:
        """Whether input waits for the end of the turn."""
        ...

    def send_action(self, one: UserAction) -> None: ...

    def show_notice(self, text: str) -> None: ...

    def redraw(self) -> None: ...

    def start_action(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run what a key asked for; a failure is told and logged."""
        ...

    async def run_program(self, command: Sequence[str], work_dir: str) -> int: ...


class InputLine:
    """The text that the user writes, and the actions of the keys in it. `@` completes to files of `work_dir`."""

    def __init__(
        self, screen: InputScreen, setup: SessionUISetup, *, work_dir: str, history: History, pasted: PastedContent
    ) -> None:
        self._screen = screen
        self._setup = setup
        self._work_dir = work_dir
        self._pasted = pasted
        self.is_shell_mode = False
        self.typed_at = 0.0
        """When the last key changed the text, on the monotonic clock; 0 for an empty input."""
        self.buffer = Buffer(multiline=True, history=history, completer=DummyCompleter(), complete_while_typing=True)
        self.buffer.on_text_changed += self._remember_typing
        self.use_setup(setup)

    def use_setup(self, setup: SessionUISetup) -> None:
        """Complete the commands and files of a session from now on, also what was typed before it."""
        self._setup = setup
        completions = setup.completions
        completer: Completer = InputCompleter(completions.commands, completions.files, self._work_dir)
        self.buffer.completer = ThreadedCompleter(completer)

    def complete_again(self) -> None:
        """Open the menu for what is typed already."""
        if self.buffer.text and self.buffer.complete_state is None:
            self.buffer.start_completion()

    # --- keys ---------------------------------------------------------------------------------------------------

    def submit(self, *, steer: bool = False) -> None:
        """Enter: accept the marked completion and run it if it is a command, else send the input.

        With `steer` the input goes into the running turn; an empty one sends the message that was queued first.
        """
        if self._accept_completion():
            return
        text = self.buffer.text
        if not text.strip():
            if steer and (queued := self._setup.take_first_queued()) is not None:
                self._screen.send_action(SteerRequested(queued))
            return
        whole = self._pasted.expand_text(text).strip()
        entered = EnteredInput(whole, self._pasted.split_into_parts(text), self.is_shell_mode)
        self.buffer.history.append_string(whole)
        self.buffer.reset()
        self.typed_at = 0.0
        self._screen.show_notice("")
        self._screen.send_action(SteerRequested(entered) if steer else entered)

    def _accept_completion(self) -> bool:
        """Put the marked completion into the input; return whether something is still to be written or chosen there."""
        state = self.buffer.complete_state
        if state is None or not state.completions:
            return False
        chosen = state.current_completion
        typed = self.buffer.text if chosen is None else state.original_document.text
        is_command = is_command_name(typed)
        if chosen is None:
            if not is_command or self._find_command(typed[1:]) is not None:
                return False
            chosen = state.completions[0]
        self.buffer.apply_completion(chosen)
        self.buffer.cancel_completion()
        if not is_command:
            return True
        command = self._find_command(chosen.text[1:])
        if command is None or not needs_arguments(command):
            return False
        self.buffer.insert_text(" ")
        return True

    def _find_command(self, name: str) -> CommandInfo | None:
        """Return the command with this full name or alias, so that nothing is left to complete."""
        found = (info for info in self._setup.completions.commands() if name in (info.name, *info.aliases))
        return next(found, None)

    def _remember_typing(self, buffer: Buffer) -> None:
        self.typed_at = time.monotonic() if buffer.text else 0.0

    def interrupt(self) -> None:
        """Ctrl-C: interrupt the running work, else clear the input, else ask to leave."""
        if self.buffer.text and not self._screen.is_busy:
            self.buffer.reset()
            return
        self._screen.send_action(InterruptRequested())

    def request_exit(self) -> None:
        """Ctrl-D: ask to leave."""
        self._screen.send_action(ExitRequested())

    def toggle_shell_mode(self) -> None:
        """Ctrl-X: turn shell mode on or off."""
        self.is_shell_mode = not self.is_shell_mode
        self._screen.redraw()

    def toggle_plan_mode(self) -> None:
        """Shift-Tab: turn plan mode on or off."""
        self._screen.send_action(PlanModeToggled())

    def show_thought(self) -> None:
        """Ctrl-T: show the last thinking in full."""
        self._screen.send_action(ThinkingRequested())

    def recall_queued(self) -> bool:
        """Up, on an empty input: move the input that was queued last back into it; return whether there was one."""
        if self.buffer.text or not self._screen.has_queued or (entered := self._setup.pop_queued()) is None:
            return False
        self.is_shell_mode = entered.is_shell_command
        self.prefill(entered.text)
        return True

    def prefill(self, text: str) -> None:
        """Put text into the input."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)
        self._screen.redraw()

    # --- pasting ------------------------------------------------------------------------------------------------

    def paste(self, text: str) -> None:
        """Insert text that was pasted; the path of an image inserts the image."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        path = text.strip().strip("'\"").replace("\\ ", " ")
        if not (os.path.isabs(path) and "\n" not in path and self._paste_picture(path)):
            self.buffer.insert_text(self._pasted.fold_text(text))

    def _paste_picture(self, path: str) -> bool:
        image = read_image(path) if self._setup.accepts_images() else None
        if image is not None:
            self.buffer.insert_text(self._pasted.add_image(image))
        return image is not None

    def paste_clipboard(self) -> None:
        """Ctrl-V: insert what the system's clipboard holds: files by their paths, a picture, or text."""
        self._screen.start_action(self._paste_clipboard)

    async def _paste_clipboard(self) -> None:
        from kimi.interfaces.shell.terminal.input.clipboard import read_clipboard

        found = await anyio.to_thread.run_sync(read_clipboard, os.environ, abandon_on_cancel=True)
        image = parse_image(found.image) if found.image else None
        if found.paths:
            for path in found.paths:
                if not self._paste_picture(path):
                    self.buffer.insert_text(f"{path} ")
        elif image is not None and self._setup.accepts_images():
            self.buffer.insert_text(self._pasted.add_image(image))
        elif found.text:
            self.paste(found.text)
        else:
            self._screen.show_notice(NO_PICTURES if image else NOTHING_TO_PASTE)

    # --- the editor ---------------------------------------------------------------------------------------------

    def open_editor(self) -> None:
        """Ctrl-O: edit the input in an editor; a running turn continues meanwhile."""
        self._screen.start_action(self._edit_input)

    async def _edit_input(self) -> None:
        folded = self.buffer.text
        text, fault = await edit_text(self._setup.editor(), self._pasted.expand_text(folded), self._run_editor)
        if fault:
            self._screen.show_notice(fault)
        elif text is not None:
            self.prefill(self._pasted.fold_again(text, folded))

    async def _run_editor(self, command: Sequence[str]) -> int:
        return await self._screen.run_program(command, self._work_dir)
