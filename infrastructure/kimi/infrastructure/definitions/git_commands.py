"""Starts git for ourselves, so that nothing runs that the repository names (runtime spec 6.4).

Somebody else may have made the repository: its configuration can name programs for almost everything, and even reading
a commit may fetch it from a remote, which is a program, too. The commands that are started only read, but for those
that make the worktrees of a batch.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence

from kimi.domain.permissions.path_rules import is_within
from kimi.infrastructure.definitions.project_files import (
    is_project_of_own_user,
    list_dirs_from_project_root,
    read_head,
)

_OPTIONS = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.editor=true", "core.askPass=true"),
    *("core.sshCommand=false", "core.gitProxy=", "core.alternateRefsCommand=true", "core.untrackedCache=false"),
    *("protocol.allow=never", "credential.helper=", "diff.external=", "diff.trustExitCode=false"),
    *("log.showSignature=false", "log.mailmap=false", "gpg.program=false", "gpg.ssh.program=false"),
    *("gpg.x509.program=false", "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false"),
    *("safe.bareRepository=explicit", "fetch.recurseSubmodules=false", "interactive.diffFilter=cat"),
)
"""What a repository can name a program with; these words win over its configuration."""

_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",  # wins over protocol.NAME.allow of the repository, which `-c` does not
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_SSH_COMMAND": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "LC_ALL": "C",
}
_KEPT_VARIABLES = (
    *("HOME", "XDG_CONFIG_HOME", "TMPDIR", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "SYSTEMROOT", "TEMP", "TMP"),
    *("APPDATA", "LOCALAPPDATA"),
)
_COMMIT = re.compile("[0-9a-f]{40,64}")
_PLAIN_ENTRIES = ("HEAD", "config", "index", "refs", "objects", "packed-refs", "logs", "info")
"""What a link could replace by the same of another repository."""


def start_git(
    work_dir: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    stderr: int = subprocess.DEVNULL,
    held_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes] | None:
    """Start git for the project of a work directory, in a session of its own; its output is a pipe.

    It keeps the descriptors `held_fds` open until it ends, where the system can.

    Returns None where there is no git, no repository, or one that belongs to another user or leads elsewhere.
    """
    project = list_dirs_from_project_root(work_dir)[0]
    directory = _find_git_directory(project)
    git = _find_git_program(environ.get("PATH", ""), project)
    if directory is None or git is None:
        return None
    options = [word for option in _OPTIONS for word in ("-c", option)]
    places = (f"--git-dir={directory}", f"--work-tree={project}")
    kept = {name: environ[name] for name in _KEPT_VARIABLES if name in environ}
    try:
        return subprocess.Popen(
            (git, "--no-pager", "--no-optional-locks", *places, *options, *arguments),
            cwd=work_dir,
            env={**kept, "PATH": os.path.dirname(git), **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=held_fds if os.name == "posix" else (),
        )
    except OSError:
        return None


def read_git_output(
    work_dir: str, arguments: Sequence[str], environ: Mapping[str, str], timeout_s: float, max_bytes: int
) -> bytes:
    """Return the first bytes that git prints; nothing if it fails or takes too long. Blocks."""
    git = start_git(work_dir, arguments, environ)
    if git is None or git.stdout is None:
        return b""
    deadline = threading.Timer(timeout_s, kill_git, (git,))
    deadline.start()
    try:
        with git:
            content = git.stdout.read(max_bytes)
            if len(content) == max_bytes:
                kill_git(git)
                return content
            return content if git.wait() == 0 else b""
    finally:
        deadline.cancel()


def kill_git(git: subprocess.Popen[bytes]) -> None:
    """Kill git and what it has started."""
    with contextlib.suppress(OSError):
        if os.name == "posix" and git.returncode is None:
            os.killpg(git.pid, 9)
        else:
            git.kill()


def _find_git_program(search_path: str, project: str) -> str | None:
    """Return git as it is found on the path, but for directories that the project brings along."""
    name = "git.exe" if os.name == "nt" else "git"
    for directory in search_path.split(os.pathsep):
        path = os.path.join(directory, name)
        if os.path.isabs(directory) and not _is_in(path, project) and os.access(path, os.X_OK):
            return path
    return None


def _is_in(path: str, project: str) -> bool:
    places, windows = (project, os.path.realpath(project)), os.name == "nt"
    return is_within(path, places, windows=windows) or is_within(os.path.realpath(path), places, windows=windows)


def _find_git_directory(project: str) -> str | None:
    """Return the directory with git's files; None where there is none, or where it may be another repository's."""
    git = os.path.join(project, ".git")
    if not os.path.lexists(git) or os.path.islink(git) or not is_project_of_own_user(project):
        return None
    if os.path.isdir(git):
        return git if _is_self_contained(git) else None
    named = read_head(git)
    if not named.startswith("gitdir:"):
        return None
    directory = os.path.normpath(os.path.join(project, named.removeprefix("gitdir:").strip()))
    if not _leads_back(directory, git):
        return None
    main = os.path.dirname(os.path.dirname(directory))  # of a worktree: MAIN/worktrees/NAME
    if os.path.normpath(os.path.join(directory, read_head(os.path.join(directory, "commondir")).strip())) == main:
        return directory if not _has_links(directory) and _is_self_contained(main) else None
    return directory if _is_self_contained(directory) else None


def _is_self_contained(directory: str) -> bool:
    """Return whether nothing in git's directory takes its place from elsewhere."""
    foreign = ("commondir", os.path.join("objects", "info", "alternates"))
    return not _has_links(directory) and not any(os.path.lexists(os.path.join(directory, name)) for name in foreign)


def _has_links(directory: str) -> bool:
    return any(os.path.islink(os.path.join(directory, name)) for name in _PLAIN_ENTRIES)


def _leads_back(directory: str, git_file: str) -> bool:
    """Return whether the directory that a `.git` file names also names that file: a worktree's, or a submodule's."""
    return any(
        os.path.realpath(os.path.join(directory, found)) == os.path.realpath(git_file)
        for found in _list_ways_back(directory)
    )


def _list_ways_back(directory: str) -> Iterator[str]:
    yield read_head(os.path.join(directory, "gitdir")).strip()
    for line in read_head(os.path.join(directory, "config")).splitlines():
        name, _, value = line.partition("=")
        if name.strip().lower() == "worktree":
            yield os.path.join(value.strip().strip('"'), ".git")


def find_branch(work_dir: str) -> str:
    """Return the checked-out branch, or the first 8 digits of a commit; empty outside of a repository.

    Only files are read: the status bar asks often.
    """
    directory = _find_git_directory(list_dirs_from_project_root(work_dir)[0])
    head = read_head(os.path.join(directory, "HEAD")).strip() if directory else ""
    branch = head.removeprefix("ref: refs/heads/")
    return branch if branch != head else head[:8] if _COMMIT.fullmatch(head) else ""
