"""Worktrees for the tasks of a batch, made so that nothing runs that the repository names (runtime spec 10.5)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio.to_thread

from kimi.domain.batch import BatchTask, BatchWorktree, DiffStat, WorktreeFailed, WorktreeSource
from kimi.infrastructure.definitions.git_commands import kill_git, start_git

BRANCH_PREFIX: Final = "kimi/batch/"
TIMEOUT_S: Final = 600.0
"""The limit for one git command; large working trees take their time."""

_FILTER_OF_REPOSITORY: Final = re.compile(r"(?:local|worktree)\tfilter\.(.+)\.[^.]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GitWorktrees:
    """`BatchWorktrees` below one directory."""

    directory: str
    environ: Mapping[str, str] = field(repr=False)
    lock_fd: int | None = None
    """The lock of the batch. git holds it, too: one that outlives this process must end before the next one begins."""
    _locks: dict[str, threading.Lock] = field(default_factory=dict[str, threading.Lock])
    """One for each repository: git itself would refuse changes that meet."""

    async def plan(self, task: BatchTask, earlier: BatchWorktree | None) -> BatchWorktree:
        """See `BatchWorktrees`."""
        assert task.worktree is not None
        return await anyio.to_thread.run_sync(self._plan, task.id, task.worktree, earlier)

    async def make(self, worktree: BatchWorktree, *, replace: bool) -> None:
        """See `BatchWorktrees`."""
        await anyio.to_thread.run_sync(self._make, worktree, replace)

    async def measure(self, worktree: BatchWorktree) -> DiffStat | None:
        """See `BatchWorktrees`."""
        try:
            return await anyio.to_thread.run_sync(self._measure, worktree)
        except WorktreeFailed:
            return None

    def _plan(self, task_id: str, source: WorktreeSource, earlier: BatchWorktree | None) -> BatchWorktree:
        if not os.path.exists(os.path.join(source.repository, ".git")):
            raise WorktreeFailed(f"{source.repository} is not the directory of a git repository.")
        commit = self._git(source.repository, "rev-list", "-1", "--end-of-options", source.ref, "--")
        branch = source.branch or BRANCH_PREFIX + task_id
        self._git(source.repository, "check-ref-format", "--branch", branch)
        worktree = BatchWorktree(os.path.join(self.directory, task_id), source.repository, branch, commit)
        if earlier is not None and earlier == BatchWorktree(
            worktree.path, worktree.repository, worktree.branch, earlier.commit
        ):
            return worktree  # what is there was made by the attempt that this one replaces
        if os.path.lexists(worktree.path):
            raise WorktreeFailed(f"{worktree.path} exists already; remove it, or choose another --output.")
        if self._git(source.repository, "for-each-ref", f"refs/heads/{branch}"):
            raise WorktreeFailed(f"The branch '{branch}' exists already in {source.repository}; name another one.")
        return worktree

    def _make(self, worktree: BatchWorktree, replace: bool) -> None:
        with self._locks.setdefault(os.path.realpath(worktree.repository), threading.Lock()):
            os.makedirs(self.directory, exist_ok=True)
            place, what = ("-b", worktree.branch, "--", worktree.path), worktree.commit
            if replace:
                shutil.rmtree(worktree.path, ignore_errors=True)
                self._git(worktree.repository, "update-ref", f"refs/heads/{worktree.branch}", worktree.commit)
                # Twice, because git locks a worktree while it makes it; that of a killed attempt may stay locked.
                place, what = ("--force", "--force", "--", worktree.path), worktree.branch
            self._git(worktree.repository, "worktree", "add", "--quiet", "--no-checkout", *place, what)
            # Apart, because configuration may hold for this worktree or branch alone, and name further filters.
            self._git(worktree.path, "reset", "--quiet", "--hard", off=self._switch_filters_off(worktree.path))

    def _measure(self, worktree: BatchWorktree) -> DiffStat:
        off = self._switch_filters_off(worktree.path)
        # A repository inside of this one has a configuration of its own: git must not look for changes in there.
        options = ("--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")
        numbers = self._git(worktree.path, "diff", "--numstat", "-z", *options, worktree.commit, "--", off=off)
        unknown = self._git(worktree.path, "ls-files", "--others", "--exclude-standard", "-z")
        rows = [line.split("\t", 2) for line in numbers.split("\0") if line]
        return DiffStat(
            len(rows),
            sum(int(row[0]) for row in rows if row[0].isdecimal()),
            sum(int(row[1]) for row in rows if row[1].isdecimal()),
            unknown.count("\0"),
        )

    def _switch_filters_off(self, directory: str) -> list[str]:
        """Return the options of git that leave out what the repository's configuration names as filters."""
        query = ("config", "--show-scope", "--name-only", "--get-regexp", r"^filter\.")
        # Nothing but a line feed ends a name here, and none is cut or replaced: it would not be switched off.
        output, error, status = self._read_git(directory, query)
        if status not in (0, 1):  # 1: there is none
            raise _describe_failure(query, directory, error, status)
        lines = output.split("\n")
        names = sorted({found[1] for line in lines if (found := _FILTER_OF_REPOSITORY.fullmatch(line))})
        if odd := next((name for name in names if "=" in name), None):
            raise WorktreeFailed(
                f"The filter {odd!a} in the configuration of {directory} cannot be left out; rename it."
            )
        keys = ("smudge=", "clean=", "process=", "required=false")
        return [word for name in names for key in keys for word in ("-c", f"filter.{name}.{key}")]

    def _git(self, directory: str, *arguments: str, off: Sequence[str] = ()) -> str:
        """Run git; `off` are those of `_switch_filters_off`, for commands that write or compare files."""
        output, error, status = self._read_git(directory, (*off, *arguments))
        if status != 0:
            raise _describe_failure(arguments, directory, error, status)
        return output.strip("\n")

    def _read_git(self, directory: str, arguments: Sequence[str]) -> tuple[str, str, int]:
        """Return what git writes to stdout and stderr, and its status."""
        held = () if self.lock_fd is None else (self.lock_fd,)
        git = start_git(directory, arguments, self.environ, stderr=subprocess.PIPE, held_fds=held)
        if git is None:
            raise WorktreeFailed(
                f"git cannot be used in {directory}: it is not installed, or the repository is another's."
            )
        timer = threading.Timer(TIMEOUT_S, kill_git, (git,))
        timer.start()
        try:
            output, error = git.communicate()
        finally:
            timer.cancel()
            with suppress(OSError):
                kill_git(git)
        return os.fsdecode(output), error.decode("utf-8", "replace"), git.returncode


def _describe_failure(arguments: Sequence[str], directory: str, error: str, status: int) -> WorktreeFailed:
    reason = " ".join(error.split()).removeprefix("fatal: ")[:500] or f"status {status}"
    return WorktreeFailed(f"git {arguments[0]} failed in {directory}: {reason}")
