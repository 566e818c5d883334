"""Files that the configuration, the project or git name, and that become commands or instructions (tools spec 2.4).

They are guarded beside `PROTECTED_PATTERNS`, which only know names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from kimi.domain.permissions.path_rules import is_within
from kimi.infrastructure.definitions.project_files import list_dirs_from_project_root, read_head

_LINKED_NAMES = (
    *(".git", ".kimi", ".kimi/skills", ".kimi/AGENTS.md", ".agents", ".agents/skills", "AGENTS.md", "agents.md"),
    *("CLAUDE.md", "GEMINI.md", ".claude", ".claude/skills", ".codex", ".codex/skills", ".husky", ".githooks"),
    *(".vscode", ".envrc", ".pre-commit-config.yaml", ".github", ".mcp.json"),
)
"""Protected names whose target is looked up: a link would otherwise lead to a file of another name."""

_WORD = re.compile(r"""[^\s;&|<>()"'`=]+""")
_HOOKS_PATH = re.compile(r"^\s*hooksPath\s*=\s*\"?([^\"\n#;]+)", re.IGNORECASE | re.MULTILINE)
_MAX_LINKS = 2_000


def list_linked_files(directories: Iterable[str]) -> Iterator[str]:
    """Yield the targets of links with protected names, and where git keeps its files, for each project."""
    for directory in dict.fromkeys(one for top in directories for one in list_dirs_from_project_root(top)):
        real = os.path.realpath(directory)
        for name in _LINKED_NAMES:
            path = os.path.join(directory, name)
            if os.path.exists(path) and (target := os.path.realpath(path)) != os.path.join(real, name):
                yield target
        yield from _list_git_files(directory)


def list_skill_files(roots: Iterable[str]) -> Iterator[str]:
    """Yield the directories of skills, and what they link to."""
    for root in roots:
        yield root
        try:
            with os.scandir(root) as entries:
                linked = [
                    entry.path for _, entry in zip(range(_MAX_LINKS), entries, strict=False) if entry.is_symlink()
                ]
        except OSError:
            continue
        yield from map(os.path.realpath, linked)


def list_named_files(command: str, directory: str) -> Iterator[str]:
    """Yield the files that a command line names, also those that do not exist yet; directories are left out."""
    for word in _WORD.findall(command):
        path = os.path.normpath(os.path.join(directory, os.path.expanduser(os.path.expandvars(word))))
        if os.path.isfile(path) or ("/" in word and not os.path.isdir(path)):
            yield path


def list_command_directories(search_path: str, work_dir: str) -> Sequence[str]:
    """Return the directories of programs, but for one that holds the work directory: that was opened to be edited."""
    directories = (one for one in search_path.split(os.pathsep) if os.path.isabs(one))
    return [
        one for one in directories if not is_within(work_dir, (one, os.path.realpath(one)), windows=os.name == "nt")
    ]


def _list_git_files(directory: str) -> Iterator[str]:
    git = os.path.join(directory, ".git")
    if os.path.isfile(git):  # a worktree or submodule names the directory
        git = os.path.normpath(os.path.join(directory, read_head(git).removeprefix("gitdir:").strip()))
        yield git
        common = read_head(os.path.join(git, "commondir")).strip()
        if common:
            git = os.path.normpath(os.path.join(git, common))
            yield git
    for found in _HOOKS_PATH.finditer(read_head(os.path.join(git, "config"))):
        yield os.path.normpath(os.path.join(directory, os.path.expanduser(found[1].strip())))
