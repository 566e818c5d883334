"""Worktrees of repositories that somebody else made: what must not run, and what must not be touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kimi.domain.batch import BatchTask, BatchWorktree, DiffStat, WorktreeFailed, WorktreeSource
from kimi.infrastructure.batch.worktrees import GitWorktrees

pytestmark = pytest.mark.anyio

COMMIT = ("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "text")


def git(directory: Path, *arguments: str) -> str:
    return subprocess.check_output(("git", *arguments), cwd=directory, text=True).strip()


def make_repository(directory: Path, content: str = "one\n") -> Path:
    directory.mkdir()
    (directory / "f.txt").write_text(content)
    git(directory, "init", "-q", "-b", "main")
    git(directory, "add", "-A")
    git(directory, *COMMIT)
    return directory


def worktrees_in(directory: Path) -> GitWorktrees:
    return GitWorktrees(str(directory / "trees"), os.environ)


def task_in(repository: Path) -> BatchTask:
    return BatchTask("a", "text", "digest", worktree=WorktreeSource(str(repository)))


async def make_worktree(directory: Path, repository: Path) -> BatchWorktree:
    worktrees = worktrees_in(directory)
    worktree = await worktrees.plan(task_in(repository), None)
    await worktrees.make(worktree, replace=False)
    return worktree


@pytest.mark.parametrize("name", [b"a\x0bb", b"a\xc2\x85b", b"a\xff"])
async def test_no_name_keeps_a_filter_of_the_repository_running(tmp_path: Path, name: bytes) -> None:
    repository = make_repository(tmp_path / "repo")
    (repository / ".gitattributes").write_bytes(b"* filter=%s\n" % name)
    git(repository, "add", "-A")
    git(repository, *COMMIT)
    trap = tmp_path / "ran"
    with (repository / ".git/config").open("ab") as file:
        file.write(b'[filter "%s"]\n\tsmudge = touch %s; cat\n' % (name, os.fsencode(trap)))
    worktree = await make_worktree(tmp_path, repository)
    assert (Path(worktree.path, "f.txt").read_text(), trap.exists()) == ("one\n", False)


async def test_a_filter_that_cannot_be_switched_off_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    (repository / ".gitattributes").write_text("* filter=a=b\n")
    git(repository, "add", "-A")
    git(repository, *COMMIT)
    with (repository / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\n\tsmudge = touch {tmp_path}/ran; cat\n')
    with pytest.raises(WorktreeFailed, match="'a=b'"):
        await make_worktree(tmp_path, repository)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("condition", ["gitdir:**/worktrees/**", "onbranch:kimi/**"])
async def test_configuration_for_worktrees_alone_names_no_filter(tmp_path: Path, condition: str) -> None:
    repository = make_repository(tmp_path / "repo")
    (repository / ".gitattributes").write_text("* filter=trap\n")
    git(repository, "add", "-A")
    git(repository, *COMMIT)
    (tmp_path / "included").write_text(f'[filter "trap"]\n\tsmudge = touch {tmp_path}/ran; cat\n')
    with (repository / ".git/config").open("a") as file:
        file.write(f'[includeIf "{condition}"]\n\tpath = {tmp_path}/included\n')
    worktree = await make_worktree(tmp_path, repository)
    assert (Path(worktree.path, "f.txt").read_text(), (tmp_path / "ran").exists()) == ("one\n", False)


async def test_measuring_runs_nothing_that_a_nested_repository_names(tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner")
    repository = make_repository(tmp_path / "repo")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(repository, *COMMIT)
    worktree = await make_worktree(tmp_path, repository)
    nested = Path(worktree.path, "sub")
    git(tmp_path, "clone", "-q", str(inner), str(nested))
    git(nested, "config", "filter.trap.clean", f"touch {tmp_path}/ran; cat")
    (nested / ".gitattributes").write_text("* filter=trap\n")
    (nested / "f.txt").write_text("two\n")
    os.utime(nested / "f.txt", (1, 1))
    measured = await worktrees_in(tmp_path).measure(worktree)
    assert (measured, (tmp_path / "ran").exists()) == (DiffStat(0, 0, 0, 0), False)


async def test_any_name_of_a_file_can_be_measured(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    git(repository, "config", "core.quotePath", "false")
    worktree = await make_worktree(tmp_path, repository)
    for name in ("a\u2028b", "tab\tline\nend", "plain"):
        Path(worktree.path, name).write_text("one\n")
    git(Path(worktree.path), "add", "-A")
    assert await worktrees_in(tmp_path).measure(worktree) == DiffStat(3, 3, 0, 0)


async def test_a_branch_of_another_repository_is_not_replaced(tmp_path: Path) -> None:
    """A task that was broken off may name another repository when it is run again."""
    earlier = await make_worktree(tmp_path, make_repository(tmp_path / "repo"))
    other = make_repository(tmp_path / "other", "two\n")
    git(other, "branch", earlier.branch)
    with pytest.raises(WorktreeFailed, match="exists already"):
        await worktrees_in(tmp_path).plan(task_in(other), earlier)
    assert await worktrees_in(tmp_path).plan(task_in(tmp_path / "repo"), earlier) == earlier


async def test_a_broken_off_worktree_is_made_anew_wherever_it_was_left(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    worktrees = worktrees_in(tmp_path)
    worktree = await worktrees.plan(task_in(repository), None)
    await worktrees.make(worktree, replace=True)  # nothing was made yet
    Path(worktree.path, "f.txt").write_text("two\n")
    git(Path(worktree.path), *COMMIT, "-a")
    Path(worktree.path, ".git").unlink()
    await worktrees.make(worktree, replace=True)
    found = git(Path(worktree.path), "rev-parse", "HEAD"), Path(worktree.path, "f.txt").read_text()
    assert (found, await worktrees.measure(worktree)) == ((worktree.commit, "one\n"), DiffStat(0, 0, 0, 0))
