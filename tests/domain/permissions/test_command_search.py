"""The search for a command wherever one may begin."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.command_rules import covers_commands, mentions_command
from kimi.domain.permissions.command_search import find_command
from tests.support.program.pace import slowdown


@pytest.mark.parametrize(
    "line",
    [
        *(
            "rm x",
            "a;rm x",
            "a&rm x",
            "a|rm x",
            "(rm x)",
            "{rm,x}",
            "`rm x`",
            "$(rm x)",
            "a\nrm\tx",
            "'rm' x",
            "r''m x",
        ),
        *(
            "r\\m x",
            "r\\\nm x",
            "$'rm' x",
            "$'\\x72m' x",
            "$'\\162m' x",
            "$'\\u0072m' x",
            "r$@m x",
            "r${e}m x",
            "/bin/rm x",
        ),
        *(
            "rm${IFS}x",
            "rm$IFS'x'",
            "${x:-rm} x",
            "${x:-$(r$@m x)}",
            "-c'r\"\"m x'",
            "env -Srm x",
            "echo $'a\\nrm x'",
            *('system("a\\nr\\\\m x")', "system(\"$'\\\\162m' x\")", "rm >t <<-E x", "rm >`t` x", "rm >a$(t) x"),
        ),
        *("# it's\nrm x", "cat <<E\nit's\nE\nrm x", "rm >log x", "rm 2>'a b' x", "rm <&-x", "bash <<<'rm >a x'"),
    ],
)
def test_command_is_found_at_every_place_where_one_may_begin(line: str) -> None:
    assert find_command("rm x", line)
    assert find_command("rm *", line)
    assert find_command("r?[!a]x*", line)


@pytest.mark.parametrize(
    "line", ["docker --rm x", "farm x", "rmx", "rm-x", "rm.x x", "x.rm x", "alarm x", "r m x", "rm y"]
)
def test_part_of_a_word_is_no_command(line: str) -> None:
    assert not find_command("rm x", line)


def test_parts_between_stars_must_follow_each_other() -> None:
    assert find_command("git * push*--force*", "(cd a; git -C b push c --force)")
    assert not find_command("git * push*--force*", "(cd a; push --force; git -C b c)")
    assert not find_command("git push", "(git pushed)")


alphabet = st.text("ab*?[] ;'\"$`\\{}(<&>-\n,", max_size=12)


@given(alphabet, alphabet, st.integers(0, 12), st.integers(0, 12))
def test_pattern_with_a_star_in_place_of_a_part_finds_no_less(line: str, pattern: str, start: int, end: int) -> None:
    if find_command(pattern.replace("[", "a"), line):
        plain = pattern.replace("[", "a")
        assert find_command(plain[:start] + "*" + plain[max(start, end) :], line)


MEBIBYTE = 1 << 20

BOMBS = {
    "words": "rm x ",
    "everything": "\\\\x72 >a $x ",
    "quotes": "'' ",
    "alternating quotes": "'\"",
    "escapes": "\\x72",
    "braces": "${",
    "redirections": ">a ",
    "redirection signs": ">",
    "here-documents": "<<E\n",
    "digits": "1",
    "continuations": "\\\n",
    "quoted letters": "r'",
    "substitutions": "$(",
    "commas": ", ",
    "commands": "ab;",
    "spaces": " ",
}


@pytest.mark.spec("R-199")
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_mebibyte_is_searched_in_time_whatever_it_holds(bomb: str) -> None:
    line = bomb * (MEBIBYTE // len(bomb)) + "'"
    patterns = ("rm *", "r" + "*a*b?" * 30 + "zz", "?" * 50 + "x*y", "*push --force*")
    began = time.process_time()
    for pattern in patterns:
        mentions_command(pattern, line, "bash")
        covers_commands(pattern, line, "bash")
    assert time.process_time() - began < 2 * slowdown()
