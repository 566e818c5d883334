"""Names of programs and shell words that run, or evaluate, what their arguments say (tools spec 5.6)."""

from __future__ import annotations

from typing import Final

from kimi.domain.permissions.shell_line import ShellLine, SimpleCommand

_SHELLS: Final = "ash bash busybox cmd csh dash elvish fish ksh mksh nu powershell pwsh rbash sh tcsh toybox xonsh zsh"
_SHELL_WORDS: Final = (
    "! . [[ alias and begin bind builtin case command compgen complete coproc do done elif else enable esac eval exec "
    "fc fi for foreach function if in mapfile nocorrect noglob not or readarray repeat select shopt source switch "
    "then time trap until while { }"
)
_INTERPRETERS: Final = (
    "awk bun deno ed emacs ex expect gawk gdb guile ipython irb java jshell julia lldb lua luajit make mawk nawk nim "
    "node nodejs nvim osascript perl php pypy python pythonw r racket rscript ruby scala sed sqlite swift tclsh ts- "
    "node tsx vi view vim"
)
_LAUNCHERS: Final = (
    "arch at batch bundle bunx bwrap caffeinate catchsegv choom chpst chroot chrt corepack crontab dbus-run-session "
    "direnv doas docker dumb-init eatmydata entr env envdir fakeroot faketime fd fdfind find firejail flatpak flock "
    "gosu guix hyperfine ionice kubectl ld.so linux lxc machinectl mise nice nix nix-shell nohup npx nsenter numactl "
    "op parallel perf pipx pkexec pnpx podman prlimit proot rlwrap rsync run-parts runas runcon runuser schroot "
    "screen script sem setarch setpriv setsid sg sort ssh sshpass start-stop-daemon stdbuf strace su su-exec sudo "
    "systemd-run tar taskset time timeout tini tmux torsocks tsocks unbuffer unshare uvx valgrind watch watchexec "
    "xargs xvfb-run"
)
_POWERSHELL_WORDS: Final = (
    "% ? foreach-object icm iex ii ipmo invoke-command invoke-expression invoke-item measure-command sajb saps "
    "start-job start-process start-threadjob where-object"
)
_RUNNERS: Final = frozenset(f"{_SHELLS} {_SHELL_WORDS} {_INTERPRETERS} {_LAUNCHERS} {_POWERSHELL_WORDS}".split())
_RUNNING_SUBCOMMANDS: Final = frozenset({"dlx", "eval", "exec", "foreach", "run", "run-script", "shell"})
_GIT_OPTIONS: Final = ("-c", "--config-env", "--exec-path", "-x", "--exec")

_EVALUATORS: Final = frozenset(
    (
        "[",
        "declare",
        "export",
        "getopts",
        "let",
        "local",
        "printf",
        "read",
        "readonly",
        "test",
        "typeset",
        "unset",
        "wait",
    )
)
"""Builtins that evaluate subscripts and arithmetic in their arguments, which may substitute commands."""


def runs_arguments(command: SimpleCommand) -> bool:
    """Return whether the command may run what its arguments, or its input, say."""
    arguments = command.arguments
    if not arguments:
        return False
    name = name_program(arguments[0])
    if name in _RUNNERS or _is_computed(arguments[0]):
        return True
    if name == "git" and any(word.startswith(_GIT_OPTIONS) for word in arguments[1:]):
        return True
    if name in ("npm", "pnpm") and arguments[1:2] == ("x",):
        return True
    return any(word in _RUNNING_SUBCOMMANDS for word in arguments[1:3])


def evaluates_arguments(command: SimpleCommand) -> bool:
    """Return whether the shell may evaluate an argument or a value of the command as an expression."""
    return bool(command.assignments) or bool(command.arguments and name_program(command.arguments[0]) in _EVALUATORS)


def may_run_more(line: ShellLine) -> bool:
    """Return whether the line may run commands other than those that it was split into."""
    return any(
        runs_arguments(command) or (line.has_hiding_signs and evaluates_arguments(command)) for command in line.commands
    )


def builds_expression(command: SimpleCommand) -> bool:
    """Return whether a builtin gets a subscript, or assembles text in a variable, which it could then evaluate."""
    if not command.arguments or (name := name_program(command.arguments[0])) not in _EVALUATORS:
        return False
    words = command.arguments[1:]
    return any("[" in word for word in words) or (name == "printf" and any(word.startswith("-v") for word in words))


def name_program(word: str) -> str:
    """Return the name under which a program is known here: without its directory, its version and `.exe`."""
    name = word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
    return name.rstrip("0123456789.") or name


def _is_computed(name: str) -> bool:
    """Return whether the shell expands the name, so that another one may come of it."""
    return len(name) > 1 and any(sign in name for sign in "$*?[{")
