"""The policy: what is allowed, asked, denied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.approval import Policy, PolicyDecision, ProposedAction, Rule, check_policy, memory_key
from kimi.domain.tools.tool import ShellBlock

COMMAND = ProposedAction("run command", "Run command `ls`", kind="command", subject="git status")
EDIT = ProposedAction("edit file", "Write file `/w/a`", kind="path", subject="/w/a")


def command(line: str) -> ProposedAction:
    """The effect of a command line."""
    return ProposedAction("run command", f"Run command `{line}`", kind="command", subject=line)


def test_by_default_everything_is_asked() -> None:
    assert check_policy(Policy(), "Shell", COMMAND) == PolicyDecision("ask", "default")


def test_modes_and_remembered_approvals_allow() -> None:
    assert check_policy(Policy(yolo=True), "Shell", COMMAND) == PolicyDecision("allow", "yolo")
    assert check_policy(Policy(afk=True), "Shell", COMMAND) == PolicyDecision("allow", "afk")
    assert check_policy(Policy(unattended=True), "Shell", COMMAND) == PolicyDecision("allow", "afk")
    assert check_policy(Policy().remember(COMMAND), "Shell", command("rm -rf x")) == PolicyDecision("allow", "session")
    assert check_policy(Policy().remember(COMMAND), "WriteFile", EDIT) == PolicyDecision("ask", "default")


def test_deny_rules_override_every_mode() -> None:
    policy = Policy(yolo=True, rules=(Rule("deny", tool="Shell", match="rm *"),)).remember(COMMAND)
    assert check_policy(policy, "Shell", command("ls; rm x")) == PolicyDecision("deny", "rule", policy.rules[0])
    assert check_policy(policy, "Shell", command("ls")) == PolicyDecision("allow", "yolo")


@pytest.mark.parametrize(
    "line",
    [
        *("echo $(date); rm x", 'rm "${x}"', "cd x && rm x # tidy up", "(ls); rm x"),
        *("(rm x)", "{ rm x; }", "f() { rm x; }", "if true; then rm x; fi", "! rm x", "case x in x) rm x;; esac"),
        *("A=1 B+=2 rm x", "echo $(rm x)", 'echo "$(rm x)"', "echo `rm x`", "cat <(rm x)", "for i in a; do rm x; done"),
        *("rm\t  x", "r''m x", "\\rm x", "'rm' x", "r\\\nm x", "rm  x"),
    ],
)
def test_deny_rules_match_visible_parts_of_complex_commands(line: str) -> None:
    policy = Policy(yolo=True, rules=(Rule("deny", tool="Shell", match="rm *"),))
    assert check_policy(policy, "Shell", command(line)) == PolicyDecision("deny", "rule", policy.rules[0])


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
def test_allow_rule_does_not_allow_chained_or_hidden_commands(line: str) -> None:
    policy = Policy(rules=(Rule("allow", tool="Shell", match="git status*"),))
    assert check_policy(policy, "Shell", command(line)) == PolicyDecision("ask", "default")
    for plain in ("git status -s", "git status 2>/dev/null", "git status > /dev/null; git status", "git status '>' x"):
        assert check_policy(policy, "Shell", command(plain)) == PolicyDecision("allow", "rule", policy.rules[0])


@pytest.mark.parametrize(
    "line", ["echo dont; git rm x", "echo '$(rm x)'", "echo 'rm x'", 'echo "(rm x)"', "echo then rm x"]
)
def test_deny_rules_ignore_quoted_text_and_arguments(line: str) -> None:
    policy = Policy(rules=(Rule("deny", tool="Shell", match="rm *"),))
    assert check_policy(policy, "Shell", command(line)) == PolicyDecision("ask", "default")


@pytest.mark.parametrize(
    "line",
    [
        'git status "a\\" ; rm x ; echo "b\\"',
        "git status \\; rm x",
        "git status ‘; rm x ’",
        'git status @"\n"\n"@; rm x; "',
    ],
)
def test_allow_rule_respects_powershell_quoting(line: str) -> None:
    policy = Policy(rules=(Rule("allow", tool="Shell", match="git status*"),))
    effect = replace(command(line), display=(ShellBlock("powershell", line),))
    assert check_policy(policy, "Shell", effect) == PolicyDecision("ask", "default")
    plain = replace(command("git status src\\a"), display=(ShellBlock("powershell", "git status src\\a"),))
    assert check_policy(policy, "Shell", plain) == PolicyDecision("allow", "rule", policy.rules[0])


@pytest.mark.spec("T-101")
def test_with_exact_scope_another_command_asks_again() -> None:
    policy = Policy(scope="exact").remember(COMMAND)
    assert check_policy(policy, "Shell", COMMAND) == PolicyDecision("allow", "session")
    assert check_policy(policy, "Shell", command("git push")) == PolicyDecision("ask", "default")


def test_prefix_scope_matches_first_two_words_and_the_directory() -> None:
    policy = Policy(scope="prefix").remember(command("git status")).remember(EDIT)
    assert check_policy(policy, "Shell", command("git status -s")).decision == "allow"
    assert check_policy(policy, "Shell", command("git status; rm x")).decision == "ask"
    assert check_policy(policy, "Shell", command("git status > x")).decision == "ask"
    assert check_policy(policy, "WriteFile", replace(EDIT, subject="/w/b")).decision == "allow"
    assert check_policy(policy, "WriteFile", replace(EDIT, subject="/w/c/b")).decision == "ask"


@pytest.mark.spec("T-102")
def test_an_mcp_approval_covers_one_server_only() -> None:
    on_a = ProposedAction("mcp:query", "", kind="mcp", remember_as="mcp:a/query")
    on_b = replace(on_a, remember_as="mcp:b/query")
    policy = Policy().remember(on_a)
    assert check_policy(policy, "query", on_a).decision == "allow"
    assert check_policy(policy, "query", on_b).decision == "ask"
    assert memory_key(on_a, "exact") == "mcp:a/query"


def test_plan_mode_asks_for_commands_under_yolo_and_denies_when_unattended() -> None:
    assert check_policy(Policy(plan=True, yolo=True), "Shell", COMMAND) == PolicyDecision("ask", "plan")
    assert check_policy(Policy(plan=True, afk=True), "Shell", COMMAND) == PolicyDecision("deny", "plan")
    assert check_policy(Policy(plan=True, unattended=True), "Shell", COMMAND) == PolicyDecision("deny", "plan")
    assert (
        check_policy(Policy(plan=True, yolo=True), "x", replace(COMMAND, allowed_in_plan_mode=True)).decision == "allow"
    )


words = st.text("ab*? ;|&$('\"\n", max_size=8)
RANK = {"deny": 0, "ask": 1, "allow": 2}


@given(words, words, st.booleans())
def test_wider_allow_rule_allows_more_and_wider_deny_rule_denies_more(line: str, pattern: str, yolo: bool) -> None:
    def rank(*rules: Rule) -> int:
        return RANK[check_policy(Policy(yolo=yolo, rules=rules), "Shell", command(line)).decision]

    assert rank(Rule("allow", match=pattern)) <= rank(Rule("allow"))
    assert rank(Rule("deny", match=pattern)) >= rank(Rule("deny"))
