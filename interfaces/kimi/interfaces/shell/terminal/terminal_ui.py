"""What the session needs of a place where a person reads and types; `screen` and `lines` are the two of them."""

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
    """Enter was pressed. `text` is what is shown and `parts` what is sent when it is not just the text; `shell`: it is
    a command for the system's shell."""

    text: str
    parts: tuple[ContentPart, ...] = ()
    is_shell_command: bool = False


@dataclass(frozen=True, slots=True)
class SteerRequested:
    """Words for the running turn."""

    entered: EnteredInput


@dataclass(frozen=True, slots=True)
class InterruptRequested:
    """Ctrl-C or Escape, with nothing typed that it could have cleared."""

    may_exit: bool = True


@dataclass(frozen=True, slots=True)
class PlanModeToggled:
    """Shift-Tab."""


@dataclass(frozen=True, slots=True)
class ThinkingRequested:
    """Ctrl-T: what was thought last, unfolded."""


@dataclass(frozen=True, slots=True)
class ExitRequested:
    """The person wants to leave."""


UserAction: TypeAlias = (
    EnteredInput | SteerRequested | InterruptRequested | PlanModeToggled | ThinkingRequested | ExitRequested
)


@dataclass(frozen=True, slots=True)
class LiveView:
    """What is on the screen beside the scrollback, as it is now."""

    open_blocks: Callable[[], Sequence[Block]] = lambda: ()
    activity: Callable[[], str] = lambda: ""
    started_at: float | None = None
    """When the work began, on the monotonic clock; None while nothing runs."""
    queued: tuple[str, ...] = ()
    status: Callable[[], StatusBarState] = lambda: StatusBarState("", "")


@dataclass(frozen=True, slots=True)
class CompletionSources:
    """What `/` and `@` complete to."""

    commands: Callable[[], Sequence[CommandInfo]] = lambda: ()
    files: Callable[[str], Sequence[str]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class SessionUISetup:
    """What a session tells the front of itself."""

    completions: CompletionSources = field(default_factory=CompletionSources)
    accepts_images: Callable[[], bool] = lambda: False
    editor: Callable[[], Sequence[str]] = lambda: ()
    pop_queued: Callable[[], EnteredInput | None] = lambda: None
    """Take back the entry that was queued last."""


class TerminalUI(Protocol):
    """A terminal with a person at it."""

    @property
    def is_interactive(self) -> bool:
        """Can menus be drawn and moved through?"""
        ...

    @property
    def lease(self) -> TerminalLease:
        """Whose the terminal is."""
        ...

    def begin_session(self, setup: SessionUISetup) -> None:
        """A session begins."""
        ...

    async def read(self) -> UserAction:
        """The next thing that the person does."""
        ...

    def show(self, *blocks: Block) -> None:
        """Print blocks for good."""
        ...

    def update(self, view: LiveView) -> None:
        """Show this beside the scrollback from now on."""
        ...

    async def ask(self, menu: Menu) -> MenuSelection | None:
        """Let the person choose; None when they would not. Cancelling closes the panel."""
        ...

    async def ask_all(self, tabs: TabbedMenus) -> tuple[MenuSelection, ...] | None:
        """The same for several questions at once."""
        ...

    def prefill(self, text: str) -> None:
        """Put text into the input, to be changed and sent."""
        ...

    def ring_bell(self) -> None:
        """Call the person back to the terminal."""
        ...

    async def run_program(self, command: Sequence[str], work_dir: str) -> int:
        """Give the terminal to a program until it ends; gives its status. Raises OSError."""
        ...

    def set_theme(self, name: str) -> None:
        """Other colours from now on."""
        ...
