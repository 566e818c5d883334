"""Rules on command lines: what bash runs is seen by deny and ask rules, and what is allowed runs nothing else.

The second half generates lines and runs them in the shells of this machine, with a harmless program in the place of
the command that a rule is about. `KIMI_LONG_TESTS=1` tries many more of them.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi.domain.permissions.command_rules import command_prefix, covers_commands, mentions_command

HIDDEN = [
    "# Let's clean up\nrm -f x", "cat <<E\nit's\nE\nrm -f x", "echo $'it\\'s'; rm -f x", ">log rm -f x",
    "coproc rm -f x", "coproc { rm -f x; }", "time -p rm -f x", "time rm -f x", "builtin rm -f x", "command rm -f x",
    "command -p rm -f x", "exec rm -f x", "exec -a y rm -f x", "nohup rm -f x", "env A=1 rm -f x", "sudo -n rm -f x",
    "ls | xargs rm -f x", "nice -n 5 rm -f x", "timeout 5 rm -f x", "case x in a) rm -f x;; esac",
    "f() { rm -f x; }; f",
    "function f { rm -f x; }; f",
    "eval rm -f x", "eval 'rm -f x'", "eval \"rm\"' -f x'", "cat <(rm -f x)",
    "tee >(rm -f x)", "trap 'rm -f x' EXIT", "a=($(rm -f x))", "a=(1 2) rm -f x", "a[0]=1 rm -f x", "((a[$(rm -f x)]))",
    "[[ -v a[$(rm -f x)] ]]", "[[ -v 'a[$(rm -f x)]' ]]", "test -v 'a[$(rm -f x)]'", "printf -v 'a[$(rm -f x)]' y",
    "unset 'a[$(rm -f x)]'", "let 'a[$(rm -f x)]'", "echo $[a[$(rm -f x)]]", "\\rm -f x", "'rm' -f x", '"r"m -f x',
    "{ rm -f x; }", "r\\\nm -f x", "rm \\\n -f x", "select i in a; do rm -f x; done", "for((;;)); do rm -f x; done",
    "for i in a; do rm -f x; done", "while rm -f x; do :; done", "if rm -f x; then :; fi", "if :; then rm -f x; fi",
    "! rm -f x", "rm >log -f x", "rm 2>/dev/null -f x", "$'rm' -f x", "$'\\x72m' -f x", "r$@m -f x", "rm${IFS}-f x",
    "{rm,-f,x}", "/bin/rm -f x", "bash -c 'rm -f x'", "bash -c \"bash -c 'rm -f x'\"", "su -c'r\"\"m -f x'",
    "echo 'rm -f x' | sh", "sh <<<'rm -f x'", "PS4='$(rm -f x)'; set -x; ls", "git -c alias.y='!rm -f x' y",
    "find . -exec rm -f x ;", "ls 2>&1; rm -f x", "ls&rm -f x", "ls|& rm -f x", "ls\nrm -f x", "A=1 B+=2 rm -f x",
    "${x:-rm -f x}", "npx rm -f x", "npm x rm -f x", "awk 'BEGIN{system(\"rm -f x\")}'", "ls 'open\nrm -f x",
    "alias e=eval\ne 'rm -f x'", "{fd}>y rm -f x", "exec 3>y rm -f x", "\"ev\"al 'rm -f x'", "$e 'rm -f x'",
    "echo ${x:-$(rm -f x)}", "cat <<-E\n\t$(rm -f x)\n\tE", "((1)); rm -f x", "cd x && rm -f x # tidy up",
]  # fmt: skip


@pytest.mark.spec("R-191")
@pytest.mark.parametrize("line", HIDDEN)
def test_command_is_mentioned_wherever_the_shell_would_run_it(line: str) -> None:
    assert mentions_command("rm -f *", line, "bash")
    assert not mentions_command("mkfs *", line, "bash")


@pytest.mark.parametrize(
    "line",
    [
        "git rm -f x",
        "echo rm -f x",
        "echo 'rm -f x'",
        'echo "(rm -f x)"',
        "ls 2>&1 | grep 'rm -f x'",
        "echo '$(rm -f x)'",
    ],
)
def test_argument_is_no_command_where_the_line_is_split_for_certain(line: str) -> None:
    assert not mentions_command("rm -f *", line, "bash")


def test_powershell_commands_are_mentioned_in_any_case() -> None:
    for line in (
        "REMOVE-ITEM x",
        "ls; remove-item x",
        "& { Remove-Item x }",
        'iex "Remove`-Item x"',
        "Start-Process Remove-Item x",
        "iex 'Remove-Item x'",
    ):
        assert mentions_command("Remove-Item *", line, "powershell")


@pytest.mark.parametrize("line", ["echo (rm -f x)", "echo 'a\\'; rm -f x; echo 'b'", "begin; rm -f x; end"])
def test_line_of_an_unknown_shell_is_searched_and_never_covered(line: str) -> None:
    assert mentions_command("rm -f *", line, "fish")
    assert not covers_commands("echo *", line, "fish")
    assert not covers_commands("*", line, "fish")
    assert mentions_command("rm -f *", "and rm -f x", "fish")


@pytest.mark.spec("R-192")
@pytest.mark.parametrize(
    "line",
    [
        "printf $[a[`x`]]", "printf $((a[$(x)]))", "printf ${x@P}", "printf -v 'a[$(x)]' y", "printf -v 'a[x]' y",
        "printf -v x '%s(cmd)]' 'a[$'; printf -v \"b[x]\" y", "printf x > /dev/null\x0bfoo", "\u00a0printf x",
        "printf x\r\nprintf y", "printf x </dev/tcp/a/1", "printf x >&2x", "printf '-v' x y", "printf x # c",
        "printf $'\\''", "printf <<<x", "printf $x(y)", "printf {fd}>x", "printf `x`", "printf \"`x`\"", "A=1 printf x",
        "printf x; printf", "printf x | sh", "! printf x", "{ printf x; }", "printf x\n#'\nrm x #'", "printf 'a",
        "printf 'a[$''(x)]'", "printf -v\"a[\\$(x)]\" y", "printf \\", "coproc printf x", "printf() { x; }; printf x",
    ],
)  # fmt: skip
def test_no_more_is_covered_than_what_the_pattern_names(line: str) -> None:
    assert not covers_commands("printf *", line, "bash")


@pytest.mark.parametrize(
    "line",
    [
        "printf x",
        "printf 'a; b' \"$x\" *.c 2>&1",
        "printf a && printf b | printf c >/dev/null",
        "printf \\\n a",
        "printf {a,b}",
    ],
)
def test_lines_of_covered_commands_are_covered(line: str) -> None:
    assert covers_commands("printf *", line, "bash")


@pytest.mark.spec("R-196")
@pytest.mark.parametrize(
    "line",
    [
        *("bash -c x", "sh x", "python x", "python3 -c x", "node x", "perl x", "ruby x", "env x", "sudo x", "xargs x"),
        *("nohup x", "timeout 5 x", "ssh host x", "docker run x", "git -c x y", "git -C x y", "ls -la x", "npm run x"),
        *(
            "git 'status' x",
            "A=1 git status",
            "git status; ls",
            "git status > x",
            "$x y",
            "git $x",
            "uv run x",
            "./a* b",
        ),
    ],
)
def test_prefix_of_a_command_that_may_run_others_is_the_whole_line(line: str) -> None:
    assert command_prefix(line, "bash") == line


@pytest.mark.parametrize(
    ("line", "prefix"), [("git status -s", "git status"), ("ls", "ls"), ("npm test --  a", "npm test")]
)
def test_prefix_of_a_plain_command_is_its_first_two_words(line: str, prefix: str) -> None:
    assert command_prefix(line, "bash") == prefix
    assert command_prefix(line, "fish") == prefix


# --- against real shells ----------------------------------------------------------------------------------------

EXAMPLES = 20_000 if os.environ.get("KIMI_LONG_TESTS") == "1" else 200


class Marker:
    """A program `mark` that does nothing but write down its first argument, and the shells that may run it."""

    def __init__(self, directory: Path) -> None:
        self.runs = 0
        self.lines = 0
        self._work = directory / "work"
        self._programs = directory / "bin"
        self._log = directory / "log"
        self._work.mkdir()
        self._programs.mkdir()
        program = self._programs / "mark"
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$1" >> "$MARK_LOG"\n')
        program.chmod(0o755)

    def run(self, line: str, shell: str = "bash") -> set[str]:
        """Run a line and everything that it leaves behind to its end; return the first arguments of `mark`."""
        self.lines += 1
        log = self._log.with_name(f"log{self.lines}")  # a process of an earlier line cannot write to it
        process = subprocess.Popen(
            [shell, "-c", line],
            cwd=self._work,
            env={"PATH": f"{self._programs}:/usr/bin:/bin", "HOME": str(self._work), "MARK_LOG": str(log)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ran = set(log.read_text(errors="replace").splitlines()) if log.exists() else set[str]()
        self.runs += bool(ran)
        return ran


SPELLINGS = st.sampled_from(
    ["mark", "m''ark", "\\mark", "'mark'", "\"ma\"'rk'", "$'mark'", "$'\\x6dark'", "ma\\\nrk", "m$@ark", "m${e}ark"]
)
GAPS = st.sampled_from([" ", "  ", "\t", " \\\n", " >o ", " 2>/dev/null ", " <&- ", " ''"])

WRAPPERS = st.sampled_from(
    [
        "eval {q}", "bash -c {q}", "echo $({c})", 'echo "a $({c}) b"', "cat <({c})", "{{ {c}; }}", "({c})",
        "if {c}; then :; fi", "if :; then {c}\nfi", "case a in a) {c};; esac", "case a in (b|a) {c}\nesac",
        "for i in a; do {c}; done", "while {c}; do break; done", "until ! {c}; do break; done", "f() {{ {c}; }}; f",
        "function f {{ {c}; }}; f", "trap {q} EXIT", "time -p {c}", "coproc {c}\nwait", ">log {c}", "2>>'a b' {c}",
        "A=1 {c}", "a=(1 2); {c}", "a[0]=1 {c}", "env A=1 {c}", "command {c}", "exec {c}", "nohup {c}", "nice -n 1 {c}",
        "timeout 5 {c}", "echo y | xargs {c}",
        "printf -v {s} x", "[[ -v {s} ]]", "test -v {s}", "let {s}",
        "declare -A a; unset {s}", "echo {q} | sh", "sh <<E\n{c}\nE", "bash <<'E'\n{c}\nE", "bash <<<{q}",
        "source /dev/stdin <<<{q}", "# it's\n{c}", "echo $'it\\'s'; {c}", "cat <<E\nit's\nE\n{c}", "{c} & wait",
        "! {c}",
        "cat <<'E'\n$(it's\nE\n{c}", "((a[$({c})]))", "echo $[a[$({c})]]", "echo ${{x:-$({c})}}", "echo $((a[$({c})]))",
        "echo 'a'; {c}", "echo don\\'t && {c}", "PS4='$('{q}')'; set -x; :", "builtin eval {q}", 'x={q}; eval "$x"',
        "x={q}; $x", "setsid -w {c}", "find . -maxdepth 0 -exec {c} ';'", 'set -- {c}; "$@"', "x=$({c})",
        "echo a#b; {c}",
        "mapfile -C {q}' #' -c 1 <<<a", "alias e=eval; shopt -s expand_aliases\ne {q}", "\\command {c}", "'time' {c}",
        "echo |& {c}", "cat <<-E\n\t$({c})\n\tE", "{{v}}>/dev/null {c}", "${{x-eval}} {q}",
    ]
)  # fmt: skip


def wrap(wrapper: str, line: str) -> str:
    """Put a line into a wrapper: as it is (`c`), quoted (`q`), or quoted as a subscript (`s`)."""
    return wrapper.format(c=line, q=shlex.quote(line), s=shlex.quote(f"a[$({line})]"))


def insert(line: str, changes: list[tuple[int, str]]) -> str:
    """Put signs into a line, or take characters out where the sign is empty."""
    for place, sign in changes:
        at = place % (len(line) + 1)
        line = line[:at] + (sign + line[at:] if sign else line[at + 1 :])
    return line


SIGNS = st.sampled_from(["", *"'\"\\#;&|<>(){}]=!\n \tx-"])
marked_lines = st.builds(
    insert,
    st.recursive(
        st.builds("{}{}x".format, SPELLINGS, GAPS), lambda inner: st.builds(wrap, WRAPPERS, inner), max_leaves=4
    ),
    st.lists(st.tuples(st.integers(0, 300), SIGNS), max_size=3),
)


@pytest.mark.spec("R-191")
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_command_that_a_shell_really_runs_is_mentioned(tmp_path: Path, shell: str) -> None:
    marker = Marker(tmp_path)

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(marked_lines)
    def check(line: str) -> None:
        ran = marker.run(line, shell)
        assert not ran or mentions_command("mark*", line, "bash")
        assert "x" not in ran or mentions_command("mark x*", line, "bash")

    check()
    assert marker.runs > marker.lines // 10


PIECES = st.sampled_from(
    [
        "$(mark x)", "`mark x`", "${x@P}", "$[a[`mark x`]]", "-v 'a[$(mark x)]' y", '-v "a[\\$(mark x)]" y', "; mark x",
        "| mark x", "& mark x", "\nmark x", "> >(mark x)", "<(mark x)", "'a[$'", "(mark", "x)]'", "-v", "x", "%s",
        '"b[x]"',
        "y;", "printf", '"$x"', "'a'", "\\", "'", '"', "#", "$'", "$", "&&", "[", "]", "(", ")", "{", "}", "\\44",
        "'%b'",
        "2>&1", "</dev/null", ">&2", "<<E", "\nE\n", "a=b", "\\\n", " ", " ", "mark", "';'", "$x",
    ]
)  # fmt: skip


@pytest.mark.spec("R-192")
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_line_that_is_covered_runs_nothing_else(tmp_path: Path, shell: str) -> None:
    marker = Marker(tmp_path)

    @settings(max_examples=EXAMPLES * 5, deadline=None)
    @given(st.lists(PIECES, min_size=1, max_size=9), st.sampled_from(["", " "]))
    def check(pieces: list[str], between: str) -> None:
        line = f"printf {between.join(pieces)}"
        if covers_commands("printf *", line, "bash"):
            assert marker.run(line, shell) == set()

    check()
    assert marker.lines > EXAMPLES // 20
    assert marker.run("printf x; mark x", shell) == {"x"}
