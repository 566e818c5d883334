"""What the slash commands that deal with files may use: the place where the agent works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from kimi.application.ports import SessionFiles, Workspace
from kimi.domain.permissions.path_rules import PathScopes


@dataclass(frozen=True, slots=True)
class LocatedPath:
    """A path as it was meant, absolute, and where it really leads."""

    absolute: str
    real: str


@dataclass(frozen=True, slots=True)
class Project:
    """Ports of the commands. A path that the user writes is relative to the work directory; `~` is their home."""

    workspace: Workspace
    locate: Callable[[str], Awaitable[LocatedPath]]
    load_path_scopes: Callable[[], Awaitable[PathScopes]]
    """What belongs to the workspace now, and which files hold secrets."""
    list_tree: Callable[[str], str]
    """Two levels of a directory, for the model; what cannot be read is left out. It blocks."""
    load_instructions: Callable[[], str]
    """The text of the project's AGENTS.md files; empty when there is none. It blocks."""
    open_stored_session: Callable[[str], Awaitable[SessionFiles | None]]
    """Another session of the work dir. Raises SessionError."""


LoadProject: TypeAlias = Callable[[], Project]
"""Made when the first command needs it: start-up time."""


def parse_path_argument(arguments: str) -> str:
    """The path that a command was given: one pair of quotes around it is dropped."""
    if len(arguments) > 1 and arguments[0] == arguments[-1] and arguments[0] in "\"'":
        return arguments[1:-1]
    return arguments
