"""Which commands may run, or evaluate, what their arguments say."""

from __future__ import annotations

import pytest

from kimi.domain.permissions.command_names import builds_expression, name_program, runs_arguments
from kimi.domain.permissions.shell_line import SimpleCommand


def command(line: str) -> SimpleCommand:
    """A command of plain words."""
    return SimpleCommand(line, tuple(line.split()))


@pytest.mark.parametrize(
    "line",
    [
        *("bash -c x", "/bin/sh x", "python3.11 -c x", "node x", "perl -e x", "env x", "sudo x", "xargs x", "nohup x"),
        *("timeout 5 x", "ssh host x", "docker run x", "find . -exec x", "eval x", "trap x EXIT", "A=1 env x", ". x"),
        *("git -c alias.x=!y x", "git -calias.x=!y x", "git rebase --exec x", "git submodule foreach x", "uv run x"),
        *("npm exec x", "npm x y", "$x y", "r* x", "{a,b}", "if x", "!", "PYTHON.EXE x", "C:\\bin\\bash.exe x"),
    ],
)
def test_command_that_runs_others_is_known(line: str) -> None:
    assert runs_arguments(command(line))


@pytest.mark.parametrize("line", ["ls -c", "git status", "git rm x", "echo bash", "cargo build", "A=1", "[ x ]", "x y"])
def test_plain_command_runs_nothing_else(line: str) -> None:
    assert not runs_arguments(command(line))


@pytest.mark.parametrize(
    ("line", "builds"),
    [
        *(("printf -v x", True), ("printf -vx", True), ("printf %s a[0]", True), ("printf %s a", False)),
        *(("declare x=a[", True), ("test -v a[x]", True), ("[ a ]", False), ("[ a[x] ]", True), ("ls [a]", False)),
    ],
)
def test_builtin_with_a_subscript_builds_an_expression(line: str, builds: bool) -> None:
    assert builds_expression(command(line)) is builds


@pytest.mark.parametrize(
    ("word", "name"),
    [("/usr/bin/python3.11", "python"), ("node18", "node"), ("C:\\x\\Bash.EXE", "bash"), (".", "."), ("2", "2")],
)
def test_program_is_named_without_directory_version_and_suffix(word: str, name: str) -> None:
    assert name_program(word) == name
