"""Choosing the shell and what commands inherit (tools spec 3.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi.application.ports import Shell
from kimi.infrastructure.workspace.environment import build_command_environment
from kimi.infrastructure.workspace.shells import choose_shell, describe_shell, find_posix_shell, find_windows_shell


def test_the_first_bash_that_exists_is_taken() -> None:
    assert find_posix_shell() == Shell("bash", "/bin/bash", "bash", ("-c",))


def test_configured_shell_is_used_unchanged() -> None:
    assert choose_shell("/opt/zsh", {}) == Shell("zsh", "/opt/zsh", "zsh", ("-c",))


@pytest.mark.parametrize(
    ("path", "name", "language"),
    [
        ("C:\\Program Files\\Git\\bin\\bash.exe", "bash", "bash"),
        ("C:\\Windows\\powershell.EXE", "powershell", "powershell"),
        ("/usr/bin/pwsh", "pwsh", "powershell"),
        ("/bin/sh", "sh", "bash"),
        ("/bin/dash", "dash", "bash"),
        ("/usr/bin/fish", "fish", "fish"),
        ("/opt/bin/nu", "nu", "nu"),
    ],
)
def test_file_name_determines_the_language(path: str, name: str, language: str) -> None:
    shell = describe_shell(path)
    assert (shell.name, shell.path, shell.language) == (name, path, language)
    assert shell.arguments == (("-NoProfile", "-NonInteractive", "-Command") if language == "powershell" else ("-c",))


def program(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_git_bash_is_found_in_four_ways_and_in_this_order(tmp_path: Path) -> None:
    files = tmp_path / "Program Files"
    installed = program(files / "Git" / "bin" / "bash.exe")
    core = tmp_path / "scoop" / "mingw64" / "libexec" / "git-core"
    told = program(tmp_path / "scoop" / "bin" / "bash.exe")
    program(tmp_path / "git" / "cmd" / "git", f"echo {core}")
    environ = {"PATH": str(tmp_path / "git" / "cmd"), "ProgramFiles": str(files)}
    assert find_windows_shell(environ | {"PATH": ""}).path == installed
    assert find_windows_shell(environ).path == told
    beside = program(tmp_path / "git" / "bin" / "bash.exe")
    assert find_windows_shell(environ).path == beside
    named = program(tmp_path / "mine" / "bash.exe")
    assert find_windows_shell(environ | {"KIMI_CLI_GIT_BASH_PATH": named}).path == named
    assert find_windows_shell(environ | {"KIMI_CLI_GIT_BASH_PATH": named + "x"}).path == beside


def test_without_git_bash_powershell_is_taken(tmp_path: Path) -> None:
    old = program(tmp_path / "powershell")
    assert find_windows_shell({"PATH": str(tmp_path)}).path == old
    new = program(tmp_path / "pwsh")
    assert find_windows_shell({"PATH": str(tmp_path)}) == describe_shell(new)
    assert find_windows_shell({"PATH": ""}).path == "powershell.exe"


def test_a_git_that_fails_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "cmd" / "git", "exit 1")
    assert find_windows_shell({"PATH": str(tmp_path / "cmd")}).path == "powershell.exe"


def test_commands_inherit_everything_except_secrets() -> None:
    environ = {"PATH": "/bin", "KEY": "k", "SHELL": "/bin/fish", "PAGER": "less"}
    assert build_command_environment(environ, frozenset({"KEY", "OTHER"}), Shell("bash", "/bin/bash", "bash")) == {
        "PATH": "/bin",
        "SHELL": "/bin/bash",
        "PAGER": "less",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
    }
