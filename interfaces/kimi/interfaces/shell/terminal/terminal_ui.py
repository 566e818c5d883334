"""What the session needs of a place where a person reads and types; `screen` and `lines` are the two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kimi.domain.command import CommandInfo
from kimi.domain.content.parts import ContentPart
from kimi.interfaces.shell.panels import Menu, Picked, Tabs
from kimi.interfaces.shell.render.blocks import Block
from kimi.interfaces.shell.render.status import Status
from kimi.interfaces.shell.terminal.terminal_lease import Loan


@dataclass(frozen=True, slots=True)
class Entered:
    """Enter was pressed. `text` is what is shown and `parts` what is sent when it is not just the text; `shell`: it is
    a command for the system's shell."""

    text: str
    parts: tuple[ContentPart, ...] = ()
    shell: bool = False


@dataclass(frozen=True, slots=True)
class Steered:
    """Words for the running turn."""

    entered: Entered


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C or Escape, with nothing typed that it could have cleared."""

    leaves: bool = True


@dataclass(frozen=True, slots=True)
class PlanToggled:
    """Shift-Tab."""


@dataclass(frozen=True, slots=True)
class ThoughtAsked:
    """Ctrl-T: what was thought last, unfolded."""


@dataclass(frozen=True, slots=True)
class Left:
    """The person wants to leave."""


Input: TypeAlias = Entered | Steered | Interrupted | PlanToggled | ThoughtAsked | Left


@dataclass(frozen=True, slots=True)
class View:
    """What is on the screen beside the scrollback, as it is now."""

    open_blocks: Callable[[], Sequence[Block]] = lambda: ()
    activity: Callable[[], str] = lambda: ""
    since: float | None = None
    """When the work began, on the monotonic clock; None while nothing runs."""
    queued: tuple[str, ...] = ()
    status: Callable[[], Status] = lambda: Status("", "")


@dataclass(frozen=True, slots=True)
class Completions:
    """What `/` and `@` complete to."""

    commands: Callable[[], Sequence[CommandInfo]] = lambda: ()
    files: Callable[[str], Sequence[str]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session tells the front of itself."""

    completions: Completions = field(default_factory=Completions)
    takes_images: Callable[[], bool] = lambda: False
    editor: Callable[[], Sequence[str]] = lambda: ()
    unqueue: Callable[[], Entered | None] = lambda: None
    """Take back the entry that was queued last."""


class Front(Protocol):
    """A terminal with a person at it."""

    @property
    def interactive(self) -> bool:
        """Can menus be drawn and moved through?"""
        ...

    @property
    def loan(self) -> Loan:
        """Whose the terminal is."""
        ...

    def begin(self, setup: Setup) -> None:
        """A session begins."""
        ...

    async def read(self) -> Input:
        """The next thing that the person does."""
        ...

    def show(self, *blocks: Block) -> None:
        """Print blocks for good."""
        ...

    def update(self, view: View) -> None:
        """Show this beside the scrollback from now on."""
        ...

    async def ask(self, menu: Menu) -> Picked | None:
        """Let the person choose; None when they would not. Cancelling closes the panel."""
        ...

    async def ask_all(self, tabs: Tabs) -> tuple[Picked, ...] | None:
        """The same for several questions at once."""
        ...

    def prefill(self, text: str) -> None:
        """Put text into the input, to be changed and sent."""
        ...

    def bell(self) -> None:
        """Call the person back to the terminal."""
        ...

    async def run_local(self, command: Sequence[str], work_dir: str) -> int:
        """Give the terminal to a program until it ends; gives its status. Raises OSError."""
        ...

    def set_theme(self, name: str) -> None:
        """Other colours from now on."""
        ...
