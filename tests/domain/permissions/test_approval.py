"""The policy: what is allowed, asked, denied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.approval import Effect, Policy, Rule, Verdict, decide, memory_key
from kimi.domain.permissions.shell_line import simple_commands
from kimi.domain.tools.tool import ShellBlock

COMMAND = Effect("run command", "Run command `ls`", kind="command", subject="git status")
EDIT = Effect("edit file", "Write file `/w/a`", kind="path", subject="/w/a")


def command(line: str) -> Effect:
    """The effect of a command line."""
    return Effect("run command", f"Run command `{line}`", kind="command", subject=line)


def test_by_default_everything_is_asked() -> None:
    assert decide(Policy(), "Shell", COMMAND) == Verdict("ask", "default")


def test_modes_and_memory_allow() -> None:
    assert decide(Policy(yolo=True), "Shell", COMMAND) == Verdict("allow", "yolo")
    assert decide(Policy(afk=True), "Shell", COMMAND) == Verdict("allow", "afk")
    assert decide(Policy(unattended=True), "Shell", COMMAND) == Verdict("allow", "afk")
    assert decide(Policy().remember(COMMAND), "Shell", command("rm -rf x")) == Verdict("allow", "session")
    assert decide(Policy().remember(COMMAND), "WriteFile", EDIT) == Verdict("ask", "default")


def test_deny_rules_beat_every_mode() -> None:
    policy = Policy(yolo=True, rules=(Rule("deny", tool="Shell", match="rm *"),)).remember(COMMAND)
    assert decide(policy, "Shell", command("ls; rm x")) == Verdict("deny", "rule")
    assert decide(policy, "Shell", command("ls")) == Verdict("allow", "yolo")


@pytest.mark.parametrize(
    "line",
    [
        *("echo $(date); rm x", 'rm "${x}"', "cd x && rm x # tidy up", "(ls); rm x"),
        *("(rm x)", "{ rm x; }", "f() { rm x; }", "if true; then rm x; fi", "! rm x", "case x in x) rm x;; esac"),
        *("A=1 B+=2 rm x", "echo $(rm x)", 'echo "$(rm x)"', "echo `rm x`", "cat <(rm x)", "for i in a; do rm x; done"),
        *("rm\t  x", "r''m x", "\\rm x", "'rm' x", "r\\\nm x", "rm  x"),
    ],
)
def test_deny_rules_match_what_can_be_seen_of_a_line_that_hides_something(line: str) -> None:
    policy = Policy(yolo=True, rules=(Rule("deny", tool="Shell", match="rm *"),))
    assert decide(policy, "Shell", command(line)) == Verdict("deny", "rule")


@pytest.mark.spec("T-110")
@pytest.mark.parametrize(
    "line",
    [
        "git status; rm x",
        "git status && x",
        "git status || x",
        "git status $(x)",
        "git status `x`",
        "git status\nx",
        "git status | sh",
        "git status & x",
        "git status <(x)",
        "git status <<E\nx\nE",
        "git status 'open",
        "git status ${x}",
        'git status #"\nrm x #"',
        'git status;#"\nrm x #"',
        "git status $'\\''; rm x #'",
        "git status () ( rm x ); git status",
        'git status "$\\\n(x)"',
        *(
            "git status > x",
            "git status >>x",
            "git status 2>x",
            "git status >| x",
            "git status <>x",
            "git status \\>>x",
        ),
        *("git status > /dev/null/../x", "git status > /dev/null > x", "git status >/dev/nullx"),
        "git status $\\\n'\\''; rm x #'",
        "git status <\\\n<E\ngit status 'x\nE\nrm x '",
    ],
)
def test_an_allow_rule_for_one_command_does_not_allow_what_hides_behind_it(line: str) -> None:
    policy = Policy(rules=(Rule("allow", tool="Shell", match="git status*"),))
    assert decide(policy, "Shell", command(line)) == Verdict("ask", "default")
    for plain in ("git status -s", "git status 2>/dev/null", "git status > /dev/null; git status", "git status '>' x"):
        assert decide(policy, "Shell", command(plain)) == Verdict("allow", "rule")


@pytest.mark.parametrize(
    "line", ["echo don't; rm x", "echo '$(rm x)'", "echo 'rm x'", 'echo "(rm x)"', "echo then rm x"]
)
def test_deny_rules_leave_alone_what_is_quoted_or_an_argument(line: str) -> None:
    policy = Policy(rules=(Rule("deny", tool="Shell", match="rm *"),))
    assert decide(policy, "Shell", command(line)) == Verdict("ask", "default")


@pytest.mark.parametrize(
    "line",
    [
        'git status "a\\" ; rm x ; echo "b\\"',
        "git status \\; rm x",
        "git status ‘; rm x ’",
        'git status @"\n"\n"@; rm x; "',
    ],
)
def test_an_allow_rule_sees_that_powershell_quotes_otherwise(line: str) -> None:
    policy = Policy(rules=(Rule("allow", tool="Shell", match="git status*"),))
    effect = replace(command(line), display=(ShellBlock("powershell", line),))
    assert decide(policy, "Shell", effect) == Verdict("ask", "default")
    plain = replace(command("git status src\\a"), display=(ShellBlock("powershell", "git status src\\a"),))
    assert decide(policy, "Shell", plain) == Verdict("allow", "rule")


@pytest.mark.spec("T-101")
def test_with_exact_scope_another_command_asks_again() -> None:
    policy = Policy(scope="exact").remember(COMMAND)
    assert decide(policy, "Shell", COMMAND) == Verdict("allow", "session")
    assert decide(policy, "Shell", command("git push")) == Verdict("ask", "default")


def test_with_prefix_scope_the_first_two_words_and_the_directory_count() -> None:
    policy = Policy(scope="prefix").remember(command("git status")).remember(EDIT)
    assert decide(policy, "Shell", command("git status -s")).decision == "allow"
    assert decide(policy, "Shell", command("git status; rm x")).decision == "ask"
    assert decide(policy, "Shell", command("git status > x")).decision == "ask"
    assert decide(policy, "WriteFile", replace(EDIT, subject="/w/b")).decision == "allow"
    assert decide(policy, "WriteFile", replace(EDIT, subject="/w/c/b")).decision == "ask"


@pytest.mark.spec("T-102")
def test_an_mcp_approval_covers_one_server_only() -> None:
    on_a = Effect("mcp:query", "", kind="mcp", remember_as="mcp:a/query")
    on_b = replace(on_a, remember_as="mcp:b/query")
    policy = Policy().remember(on_a)
    assert decide(policy, "query", on_a).decision == "allow"
    assert decide(policy, "query", on_b).decision == "ask"
    assert memory_key(on_a, "exact") == "mcp:a/query"


def test_plan_mode_asks_for_commands_even_under_yolo_and_denies_when_nobody_is_there() -> None:
    assert decide(Policy(plan=True, yolo=True), "Shell", COMMAND) == Verdict("ask", "plan")
    assert decide(Policy(plan=True, afk=True), "Shell", COMMAND) == Verdict("deny", "plan")
    assert decide(Policy(plan=True, unattended=True), "Shell", COMMAND) == Verdict("deny", "plan")
    assert decide(Policy(plan=True, yolo=True), "x", replace(COMMAND, exempt=True)).decision == "allow"


words = st.text("ab*? ;|&$('\"\n", max_size=8)
RANK = {"deny": 0, "ask": 1, "allow": 2}


@given(words, words, st.booleans())
def test_a_wider_allow_rule_never_allows_less_and_a_wider_deny_rule_never_more(
    line: str, pattern: str, yolo: bool
) -> None:
    def rank(*rules: Rule) -> int:
        return RANK[decide(Policy(yolo=yolo, rules=rules), "Shell", command(line)).decision]

    assert rank(Rule("allow", match=pattern)) <= rank(Rule("allow"))
    assert rank(Rule("deny", match=pattern)) >= rank(Rule("deny"))


@given(st.lists(st.text("abc -", min_size=1, max_size=6), min_size=1, max_size=4), st.sampled_from(["&&", ";", "|"]))
def test_simple_commands_are_the_pieces_between_the_operators(pieces: list[str], operator: str) -> None:
    expected = [piece.strip() for piece in pieces if piece.strip()]
    assert simple_commands(f" {operator} ".join(pieces)) == expected


@pytest.mark.parametrize("line", ["echo 'a; b' \"c && d\" e\\;f", "python -c 'print(1) # one'", "echo a#b"])
def test_quotes_hold_a_command_together(line: str) -> None:
    assert simple_commands(line) == [line]
