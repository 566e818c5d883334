"""Splitting a shell line: what is understood, and what is not split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.shell_line import MAX_SPLIT_CHARS, parse_shell_line, split_simple_commands


@given(st.lists(st.text("abc -", min_size=1, max_size=6), min_size=1, max_size=4), st.sampled_from(["&&", ";", "|"]))
def test_command_line_is_split_at_operators(pieces: list[str], operator: str) -> None:
    expected = [piece.strip() for piece in pieces if piece.strip()]
    assert split_simple_commands(f" {operator} ".join(pieces)) == expected


@pytest.mark.parametrize(
    "line", ["echo 'a; b' \"c && d\" e\\;f", "python -c 'print(1) # one'", "echo a#b", 'grep "x$" a', "echo \\\n a"]
)
def test_quoted_operators_do_not_split_a_command(line: str) -> None:
    assert split_simple_commands(line) == [line]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("r''m \"a b\" 'c d' e\\ f", ("rm", "a b", "c d", "e f")),
        ('echo "a\\"b\\n" \\$x', ("echo", 'a"b\\n', "$x")),
        ("r\\\nm \\\n x", ("rm", "x")),
        (">log rm 2>&1 x >> 'a b' y </dev/null", ("rm", "x", "y")),
        ("rm <&-x >&- y", ("rm", "x", "y")),
        ("'a'1>b c", ("a1", "c")),
        ("rm '' x", ("rm", "", "x")),
        ("rm <<<'a b' x", ("rm", "x")),
    ],
)
def test_words_are_read_without_quotes_and_redirections(line: str, words: tuple[str, ...]) -> None:
    parsed = parse_shell_line(line)
    assert parsed is not None
    assert [command.words for command in parsed.commands] == [words]


@pytest.mark.parametrize(
    ("line", "changes_files"),
    [
        *((f"ls {harmless}", False) for harmless in ("2>&1", ">/dev/null", "2> /dev/null", "&>/dev/null", "2>&-")),
        *((f"ls {change}", True) for change in (">x", ">>x", "2>x", "<x", "<>x", ">|x", ">&x", "&>x", ">/dev/nullx")),
        *((f"ls {change}", True) for change in ("</dev/tcp/a/80", ">&12", ">", "<<<x", ">&/dev/null")),
    ],
)
def test_only_a_redirection_that_keeps_all_files_is_harmless(line: str, changes_files: bool) -> None:
    parsed = parse_shell_line(line)
    assert parsed is not None
    assert parsed.changes_files is changes_files


@pytest.mark.parametrize(
    "line",
    [
        *("ls # it's", "cat <<E\nx\nE", "echo $'a'", "echo $[1]", "echo $((1))", "echo ${x}", "echo $(x)", "echo `x`"),
        *("cat <(x)", "cat >(x)", "(x)", "f() { x; }", "a=(x)", "case x in x) y;; esac", "echo 'open", 'echo "open'),
        *('echo $"a"', "echo $\\\n(x)", 'echo "$\\\n(x)"', "echo \\", "ls\r\nrm x", "\u00a0ls", "ls >/dev/null\x0bx"),
        "ls " + "a" * MAX_SPLIT_CHARS,
    ],
)
def test_line_that_may_be_read_differently_is_not_split(line: str) -> None:
    assert parse_shell_line(line) is None


@pytest.mark.parametrize("language", ["fish", "zsh", "nu", "tcsh", "cmd"])
def test_another_shell_gets_a_line_split_only_without_signs(language: str) -> None:
    assert split_simple_commands("git log --oneline -3 HEAD", language) == ["git log --oneline -3 HEAD"]
    for line in (
        "git log 'a'",
        'git log "a"',
        "git log; ls",
        "git log\nls",
        "git log $x",
        "git log (ls)",
        "ls *",
        "a|b",
    ):
        assert parse_shell_line(line, language) is None


def test_powershell_is_split_by_its_own_quoting() -> None:
    assert split_simple_commands("git add src\\a; ls 'b; c' \"d $x\"", "powershell") == [
        "git add src\\a",
        "ls 'b; c' \"d $x\"",
    ]
    for line in ('echo "a`"; rm x"', "echo @'\n'@", "echo \u2018a\u2019", "& { rm x }", "echo (rm x)", "ls > x"):
        assert parse_shell_line(line, "powershell") is None
