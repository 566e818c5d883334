"""The project in which the agent works, for the slash commands that deal with files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from kimi.application.ports import SessionFiles, Workspace
from kimi.domain.permissions.path_rules import PathScopes


@dataclass(frozen=True, slots=True)
class LocatedPath:
    """A path that the user wrote: made absolute, and with all symbolic links resolved."""

    absolute: str
    real: str


@dataclass(frozen=True, slots=True)
class Project:
    """The ports of the commands. A path that the user writes is relative to the work directory; `~` is the home."""

    workspace: Workspace
    locate: Callable[[str], Awaitable[LocatedPath]]
    load_path_scopes: Callable[[], Awaitable[PathScopes]]
    """Returns the directories that belong to the workspace now, and which files hold secrets."""
    list_tree: Callable[[str], str]
    """Returns two levels of a directory as text for the model, without unreadable entries. Blocks."""
    load_instructions: Callable[[], str]
    """Returns the text of the project's AGENTS.md files, empty when there is none. Blocks."""
    open_stored_session: Callable[[str], Awaitable[SessionFiles | None]]
    """Opens another session of the work directory; None when there is none. Raises SessionError."""


LoadProject: TypeAlias = Callable[[], Project]
"""Called when the first command needs the project, which keeps the work out of start-up."""


def parse_path_argument(arguments: str) -> str:
    """Return the path in the arguments of a command, without one pair of quotes around it."""
    if len(arguments) > 1 and arguments[0] == arguments[-1] and arguments[0] in "\"'":
        return arguments[1:-1]
    return arguments
