"""The terminal UI that a session talks to; `screen_ui` and `line_ui` implement it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kimi.domain.command import CommandInfo
from kimi.domain.content.parts import ContentPart
from kimi.interfaces.shell.panels import Menu, MenuSelection, TabbedMenus
from kimi.interfaces.shell.render.blocks import Block
from kimi.interfaces.shell.render.status import StatusBarState
from kimi.interfaces.shell.terminal.terminal_lease import TerminalLease


@dataclass(frozen=True, slots=True)
class EnteredInput:
    """The user pressed Enter. `text` is shown; `parts` are sent instead of it unless they are empty.

    With `is_shell_command` the text is a command for the system's shell.
    """

    text: str
    parts: tuple[ContentPart, ...] = ()
    is_shell_command: bool = False


@dataclass(frozen=True, slots=True)
class SteerRequested:
    """The user sends input into the running turn."""

    entered: EnteredInput


@dataclass(frozen=True, slots=True)
class InterruptRequested:
    """The user pressed Ctrl-C or Escape while there was no input to clear."""

    may_exit: bool = True


@dataclass(frozen=True, slots=True)
class PlanModeToggled:
    """The user pressed Shift-Tab."""


@dataclass(frozen=True, slots=True)
class ThinkingRequested:
    """The user pressed Ctrl-T to see the last thinking in full."""


@dataclass(frozen=True, slots=True)
class ExitRequested:
    """The user wants to leave."""


UserAction: TypeAlias = (
    EnteredInput | SteerRequested | InterruptRequested | PlanModeToggled | ThinkingRequested | ExitRequested
)


@dataclass(frozen=True, slots=True)
class LiveView:
    """The content of the screen below the scrollback. The functions are called at each drawing."""

    open_blocks: Callable[[], Sequence[Block]] = lambda: ()
    activity: Callable[[], str] = lambda: ""
    started_at: float | None = None
    """When the running work began, on the monotonic clock; None while nothing runs."""
    queued: tuple[str, ...] = ()
    status: Callable[[], StatusBarState] = lambda: StatusBarState("", "")


@dataclass(frozen=True, slots=True)
class CompletionSources:
    """What `/` and `@` complete to."""

    commands: Callable[[], Sequence[CommandInfo]] = lambda: ()
    files: Callable[[str], Sequence[str]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class SessionUISetup:
    """What the terminal UI needs from a session."""

    completions: CompletionSources = field(default_factory=CompletionSources)
    accepts_images: Callable[[], bool] = lambda: False
    editor: Callable[[], Sequence[str]] = lambda: ()
    pop_queued: Callable[[], EnteredInput | None] = lambda: None
    """Remove the input that was queued last and return it."""
    take_first_queued: Callable[[], EnteredInput | None] = lambda: None
    """Remove the oldest queued message that may go into the running turn and return it."""


class TerminalUI(Protocol):
    """A terminal with a user."""

    @property
    def is_interactive(self) -> bool:
        """Whether menus are drawn, and keys move through them."""
        ...

    @property
    def lease(self) -> TerminalLease:
        """Whether the shell or a program has the terminal."""
        ...

    @property
    def has_input(self) -> bool:
        """Whether the user has begun to write."""
        ...

    def copy(self, text: str) -> bool:
        """Ask the terminal to put text into the clipboard; return whether it may know how."""
        ...

    def begin_session(self, setup: SessionUISetup) -> None:
        """Use the completions and callbacks of a new session."""
        ...

    async def read(self) -> UserAction:
        """Return the next action of the user."""
        ...

    def show(self, *blocks: Block) -> None:
        """Print blocks to the scrollback; they are never drawn again."""
        ...

    def update(self, view: LiveView) -> None:
        """Show this view below the scrollback from now on."""
        ...

    async def ask(self, menu: Menu) -> MenuSelection | None:
        """Let the user choose; return None when they dismiss the menu. Cancelling closes the panel."""
        ...

    async def ask_all(self, tabs: TabbedMenus) -> tuple[MenuSelection, ...] | None:
        """Let the user answer several menus; return None when they dismiss them."""
        ...

    def prefill(self, text: str) -> None:
        """Put text into the input for the user to edit and send."""
        ...

    def ring_bell(self) -> None:
        """Ring the bell to call the user back to the terminal."""
        ...

    async def run_program(self, command: Sequence[str], work_dir: str) -> int:
        """Run a program on the terminal until it ends; return its status. Raises OSError."""
        ...

    def set_theme(self, name: str) -> None:
        """Use the colours of this theme from now on."""
        ...
