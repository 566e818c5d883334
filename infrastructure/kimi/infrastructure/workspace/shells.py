"""The choice of the shell that runs commands (tools spec 3.1)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from kimi.application.ports import Shell

POSIX_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
"""Tried in this order; `/bin/sh` when none of them exists."""

_POSIX_NAMES = ("bash", "sh", "dash", "ash")
"""Shells whose lines are read as bash's; every other one is a language of its own."""

GIT_BASH_VARIABLE = "KIMI_CLI_GIT_BASH_PATH"


def choose_shell(path: str | None, environ: Mapping[str, str]) -> Shell:
    """Return the shell of this machine; `path` is the one that the configuration names, used unchecked."""
    if path is not None:
        return describe_shell(path)
    if sys.platform == "win32":
        return find_windows_shell(environ)
    return find_posix_shell()


def find_posix_shell() -> Shell:
    """Return bash if it exists, else the system's shell; without a login and without start-up files."""
    return describe_shell(next((path for path in POSIX_SHELLS if os.path.exists(path)), "/bin/sh"))


def describe_shell(path: str) -> Shell:
    """Describe the shell at `path`; its file name determines the language and how it takes a command line."""
    name = PurePath(path.replace("\\", "/")).name.lower().removesuffix(".exe")
    if name in ("pwsh", "powershell"):
        return Shell(name, path, "powershell", ("-NoProfile", "-NonInteractive", "-Command"))
    return Shell(name, path, "bash" if name in _POSIX_NAMES else name)


def find_windows_shell(environ: Mapping[str, str]) -> Shell:
    """Return Git's bash if it can be found, else PowerShell 7, else the PowerShell that Windows comes with."""
    from kimi.infrastructure.workspace.programs import find_program  # start-up time

    bash = next((path for path in _find_git_bash_paths(environ) if os.path.isfile(path)), None)
    if bash is not None:
        return describe_shell(bash)
    powershell = find_program("pwsh", environ) or find_program("powershell", environ)
    return describe_shell(powershell or "powershell.exe")


def _find_git_bash_paths(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the possible paths of bash: named by the user, beside git, in git's own directory, in the usual folders."""
    if named := environ.get(GIT_BASH_VARIABLE):
        yield named
    from kimi.infrastructure.workspace.programs import find_program  # start-up time

    if git := find_program("git", environ):
        root = os.path.dirname(os.path.dirname(git))
        yield os.path.join(root, "bin", "bash.exe")
        yield from _find_bash_beside_git(git)
    for variable in ("ProgramFiles", "ProgramFiles(x86)"):
        if folder := environ.get(variable):
            yield os.path.join(folder, "Git", "bin", "bash.exe")


def _find_bash_beside_git(git: str) -> Iterator[str]:
    """Yield `ROOT/bin/bash.exe` if `git --exec-path` is `ROOT/mingw64/libexec/git-core`."""
    try:
        answer = subprocess.run([git, "--exec-path"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return
    if places := answer.stdout.strip():
        yield os.path.join(os.path.normpath(os.path.join(places, "..", "..", "..")), "bin", "bash.exe")
