"""git that we start ourselves in repositories that somebody else made (runtime spec 6.4)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kimi.infrastructure.definitions.git_commands import find_branch, start_git
from kimi.infrastructure.definitions.git_context import read_git_context

pytestmark = pytest.mark.anyio

LIST_FILES = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
ENVIRON = {**os.environ, "KIMI_API_KEY": "planted-key"}


def git(directory: Path, *arguments: str) -> str:
    """Run git as the one who made the repository."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(("git", *identity, *arguments), cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits."""
    made = tmp_path / "repository"
    made.mkdir()
    git(made, "init", "-q")
    for number, subject in enumerate(("first subject", "second subject")):
        (made / f"file{number}.txt").write_text(f"{number}\n", encoding="utf-8")
        git(made, "add", ".")
        git(made, "commit", "-q", "-m", subject)
    return made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a mark with its environment."""
    made = tmp_path / "attack"
    made.write_text(f"#!/bin/sh\nenv >> {tmp_path / 'ran'}\nexit 1\n", encoding="utf-8")
    made.chmod(0o755)
    return made


def list_files(directory: Path) -> list[str]:
    """The files that git lists, as the completion asks for them."""
    process = start_git(str(directory), LIST_FILES, ENVIRON)
    if process is None:
        return []
    with process:
        listed, _ = process.communicate(timeout=30)
    return sorted(name for name in listed.decode().split("\0") if name)


async def test_branch_and_commits_are_told(repository: Path) -> None:
    told = (await read_git_context(str(repository), ENVIRON)).splitlines()
    assert told[:2] == ["Branch: main", "Last commits:"]
    assert [line.split(" ", 1)[1] for line in told[2:]] == ["second subject", "first subject"]
    below = repository / "below"
    below.mkdir()
    assert (await read_git_context(str(below), ENVIRON)).splitlines() == told
    assert list_files(repository) == ["file0.txt", "file1.txt"]


def remove_objects(repository: Path) -> None:
    """Leave names of commits whose objects are missing."""
    git(repository, "repack", "-adq")
    for pack in (repository / ".git/objects/pack").iterdir():
        pack.unlink()


def make_promisor(repository: Path, program: Path, url: str) -> None:
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.partialCloneFilter", "blob:none"),
        ("remote.origin.url", url),
        ("remote.origin.uploadpack", str(program)),
        *((f"protocol.{scheme}.allow", "always") for scheme in ("file", "ext", "ssh")),
        ("core.sshCommand", str(program)),
        ("core.gitProxy", str(program)),
        ("core.alternateRefsCommand", str(program)),
        ("credential.helper", f"!{program}"),
    ):
        git(repository, "config", name, value)
    remove_objects(repository)


def configure(*pairs: tuple[str, str]) -> Callable[[Path, Path], None]:
    """An attack that names the program under these keys."""

    def attack(repository: Path, program: Path) -> None:
        for name, value in pairs:
            git(repository, "config", name, value.format(program))

    return attack


def promisor_of_a_path(repository: Path, program: Path) -> None:
    make_promisor(repository, program, str(repository))


def promisor_of_an_address(repository: Path, program: Path) -> None:
    make_promisor(repository, program, f"ext::{program} x")


def promisor_over_ssh(repository: Path, program: Path) -> None:
    make_promisor(repository, program, "ssh://example.invalid/x")


def filters(repository: Path, program: Path) -> None:
    attributes = "* filter=evil diff=evil merge=evil\n"
    (repository / ".gitattributes").write_text(attributes, encoding="utf-8")
    (repository / ".git/info").mkdir(exist_ok=True)
    (repository / ".git/info/attributes").write_text(attributes, encoding="utf-8")
    for key in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv"):
        git(repository, "config", key, str(program))
    git(repository, "config", "diff.evil.command", str(program))
    (repository / "file0.txt").write_text("changed\n", encoding="utf-8")


def hooks(repository: Path, program: Path) -> None:
    folder = repository / "own-hooks"
    folder.mkdir()
    for name in ("post-index-change", "post-checkout", "pre-commit", "fsmonitor-watchman", "reference-transaction"):
        shutil.copy(program, folder / name)
        shutil.copy(program, repository / ".git/hooks" / name)
    git(repository, "config", "core.hooksPath", str(folder))


def included(repository: Path, program: Path) -> None:
    (repository / "more").write_text(f'[core]\n\tfsmonitor = {program}\n[alias]\n\tlog = "!{program}"\n')
    git(repository, "config", "include.path", "../more")
    git(repository, "config", "includeIf.gitdir:/.path", "../more")


def signed(repository: Path, program: Path) -> None:
    for key in ("gpg.program", "gpg.ssh.program", "gpg.x509.program"):
        git(repository, "config", key, str(program))
    for key in ("log.showSignature", "commit.gpgSign"):
        git(repository, "config", key, "true")
    head = git(repository, "cat-file", "commit", "HEAD")
    top, _, message = head.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    made = subprocess.run(
        ("git", "hash-object", "-t", "commit", "-w", "--stdin"),
        cwd=repository, input=f"{top}\n{signature}\n\n{message}", capture_output=True, text=True, check=True,
    )  # fmt: skip
    git(repository, "update-ref", "refs/heads/main", made.stdout.strip())


def sparse(repository: Path, program: Path) -> None:
    (repository / "below").mkdir()
    (repository / "below/x").write_text("x", encoding="utf-8")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "third subject")
    git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "other")
    make_promisor(repository, program, str(repository))


def own_program(repository: Path, program: Path) -> None:
    shutil.copy(program, repository / "git")


ATTACKS: dict[str, Callable[[Path, Path], None]] = {
    "fsmonitor": configure(("core.fsmonitor", "{}")),
    "pager": configure(("core.pager", "{}"), ("pager.log", "{}"), ("core.editor", "{}"), ("core.askPass", "{}")),
    "alias": configure(("alias.log", "!{}"), ("alias.ls-files", "!{}"), ("alias.rev-parse", "!{}")),
    "diff": configure(("diff.external", "{}"), ("interactive.diffFilter", "{}"), ("diff.tool", "x")),
    "credentials": configure(("credential.helper", "!{}"), ("core.sshCommand", "{}")),
    "signatures": signed,
    "filters": filters,
    "hooks": hooks,
    "includes": included,
    "promisor path": promisor_of_a_path,
    "promisor address": promisor_of_an_address,
    "promisor ssh": promisor_over_ssh,
    "sparse index": sparse,
    "own program": own_program,
}


@pytest.mark.spec("R-202")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_nothing_runs_that_a_repository_names(
    attack: Callable[[Path, Path], None], repository: Path, program: Path, tmp_path: Path
) -> None:
    attack(repository, program)
    (tmp_path / "ran").unlink(missing_ok=True)
    environ = {**ENVIRON, "PATH": f"{repository}{os.pathsep}.{os.pathsep}{os.environ['PATH']}"}
    await read_git_context(str(repository), environ)
    list_files(repository)
    find_branch(str(repository))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("attack", [promisor_of_a_path, promisor_of_an_address, promisor_over_ssh, sparse, signed])
def test_the_attack_works_on_plain_git(
    attack: Callable[[Path, Path], None], repository: Path, program: Path, tmp_path: Path
) -> None:
    attack(repository, program)
    (tmp_path / "ran").unlink(missing_ok=True)
    for arguments in (("log", "--oneline"), LIST_FILES):
        subprocess.run(("git", *arguments), cwd=repository, env=ENVIRON, capture_output=True, check=False)
    assert "planted-key" in (tmp_path / "ran").read_text(encoding="utf-8")


@pytest.mark.spec("R-202")
async def test_git_gets_no_variable_but_those_it_needs(repository: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\n/usr/bin/env > {tmp_path / 'seen'}\n", encoding="utf-8")
    (programs / "git").chmod(0o755)
    list_files_with = start_git(str(repository), LIST_FILES, {**ENVIRON, "PATH": str(programs), "GIT_DIR": "/x"})
    assert list_files_with is not None
    with list_files_with:
        list_files_with.communicate(timeout=30)
    seen = (tmp_path / "seen").read_text(encoding="utf-8")
    assert "GIT_ALLOW_PROTOCOL=none" in seen
    assert "planted-key" not in seen
    assert "GIT_DIR" not in seen


# --- repositories that lead elsewhere ---------------------------------------------------------------------------


async def tells_nothing(directory: Path) -> bool:
    told = await read_git_context(str(directory), ENVIRON)
    return told == "" and list_files(directory) == [] and find_branch(str(directory)) == ""


@pytest.mark.spec("R-202")
@pytest.mark.parametrize("way", ["file", "link", "commondir", "refs", "alternates", "own file"])
async def test_a_repository_that_leads_into_another_one_tells_nothing(
    way: str, repository: Path, tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    other = repository / ".git"
    if way == "file":
        (hostile / ".git").write_text(f"gitdir: {other}\n", encoding="utf-8")
    elif way == "link":
        os.symlink(other, hostile / ".git")
    elif way == "own file":
        own = hostile / "store/worktrees/x"
        own.mkdir(parents=True)
        (hostile / ".git").write_text(f"gitdir: {own}\n", encoding="utf-8")
        for name, text in (("gitdir", hostile / ".git"), ("commondir", other), ("HEAD", "ref: refs/heads/main")):
            (own / name).write_text(f"{text}\n", encoding="utf-8")
    else:
        git(hostile, "init", "-q")
        if way == "commondir":
            (hostile / ".git/commondir").write_text(str(other), encoding="utf-8")
        elif way == "refs":
            for name in ("refs", "objects"):
                shutil.rmtree(hostile / ".git" / name)
                os.symlink(other / name, hostile / ".git" / name)
        else:
            (hostile / ".git/objects/info/alternates").write_text(f"{other / 'objects'}\n", encoding="utf-8")
            os.symlink(other / "refs/heads/main", hostile / ".git/refs/heads/main")
    assert await tells_nothing(hostile)


async def test_worktrees_and_submodules_are_repositories(repository: Path, tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    git(repository, "worktree", "add", "-q", "-b", "topic/x", str(worktree))
    assert "Branch: topic/x\n" in await read_git_context(str(worktree), ENVIRON)
    assert find_branch(str(worktree)) == "topic/x"
    assert list_files(worktree) == ["file0.txt", "file1.txt"]

    above = tmp_path / "above"
    above.mkdir()
    git(above, "init", "-q")
    git(above, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "sub")
    assert "second subject" in await read_git_context(str(above / "sub"), ENVIRON)
    assert find_branch(str(above / "sub")) == "main"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("given", [".", ".git"])
async def test_the_repository_of_another_user_tells_nothing(given: str, repository: Path) -> None:
    os.chown(repository / given, 54321, 54321)
    assert await tells_nothing(repository)


@pytest.mark.parametrize("name", [".git", ".git/HEAD"])
async def test_a_pipe_in_the_place_of_a_file_does_not_block(name: str, tmp_path: Path) -> None:
    if name != ".git":
        git(tmp_path, "init", "-q")
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert find_branch(str(tmp_path)) == ""
