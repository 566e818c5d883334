"""Compose the adapters that only the shell needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kimi.application.ports import ChatModel

if TYPE_CHECKING:
    import subprocess


def walk_files(directory: str) -> Sequence[str]:
    """Return the files below a directory that no ignore file excludes, relative to it; at most 1000."""
    from kimi.infrastructure.definitions.file_listing import walk_files as walk

    return walk(directory)


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program on the search path, whose relative directories do not count; None without any."""
    from kimi.infrastructure.workspace.programs import find_program as find

    return find(name, environ)


def list_git_files(directory: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Start git to print the files below a directory that it tracks or would add, each with a NUL behind it.

    Returns None where there is no git, or no repository that it may work with. Nothing runs that the repository names.
    """
    from kimi.infrastructure.definitions.git_commands import start_git

    return start_git(directory, ("ls-files", "--cached", "--others", "--exclude-standard", "-z"), environ)


def find_branch(directory: str) -> str:
    """Return the checked-out branch, or the first 8 digits of a commit; empty outside of a repository."""
    from kimi.infrastructure.definitions.git_commands import find_branch as find

    return find(directory)


def read_git_marks(directory: str, environ: Mapping[str, str]) -> str:
    """Return signs for changes (`*`) and for commits ahead of (`↑2`) or behind the upstream branch; blocks for seconds.

    They are empty where they cannot be told safely: nothing runs that the repository names.
    """
    from kimi.infrastructure.definitions.git_marks import read_git_marks as read

    marks = read(directory, environ)
    if marks is None:
        return ""
    counts = (f" {sign}{count}" for sign, count in (("↑", marks.ahead), ("↓", marks.behind)) if count)
    return ("*" if marks.is_dirty else "") + "".join(counts)


def end_process_tree(pid: int, grace_s: float) -> None:
    """Ask a process and its descendants to end, and kill them after `grace_s` seconds. Blocks until then.

    Where the system does not list descendants, only a process that leads a group is found.
    """
    from kimi.infrastructure.workspace.process_table import end_tree_now

    end_tree_now(pid, grace_s)


def grab_clipboard() -> tuple[Sequence[str], bytes | None]:
    """Return the paths of copied files, and a picture as PNG, where Pillow can read the clipboard."""
    from kimi.infrastructure.tools.files.pictures import grab_clipboard as grab

    return grab()


def build_demo_model() -> ChatModel:
    """Return the demo model, which needs no account."""
    from kimi.infrastructure.models.offline.demo import DemoModel

    return DemoModel()
