"""The policy: what is allowed, asked, denied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.approval import (
    Decision,
    Policy,
    PolicyDecision,
    ProposedAction,
    Rule,
    check_policy,
    memory_key,
)
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


WEB = ProposedAction("fetch url", "Fetch", kind="web", subject="docs.example.com", remember_as="fetch:docs.example.com")
PROTECTED = ProposedAction("edit protected file", "Edit", kind="path", subject="/w/.git/config", is_protected=True)


@pytest.mark.spec("R-190")
@pytest.mark.parametrize(
    "mode", [Policy(), Policy(yolo=True), Policy(yolo=True, plan=True), Policy().remember(COMMAND)]
)
def test_rules_decide_in_the_order_deny_ask_allow(mode: Policy) -> None:
    allow, ask, deny = Rule("allow"), Rule("ask", match="git *"), Rule("deny", match="git push*")
    for rules in ((allow, ask, deny), (deny, ask, allow), (ask, deny, allow)):
        policy = replace(mode, rules=rules)
        assert check_policy(policy, "Shell", command("ls; git push x")) == PolicyDecision("deny", "rule", deny)
        assert check_policy(policy, "Shell", command("ls; git status")) == PolicyDecision("ask", "rule", ask)


@pytest.mark.spec("R-190")
@pytest.mark.parametrize("mode", [Policy(afk=True), Policy(unattended=True), Policy(yolo=True, afk=True)])
def test_ask_rule_refuses_where_nobody_can_be_asked(mode: Policy) -> None:
    policy = replace(mode, rules=(Rule("ask", tool="Shell", match="git push*"),))
    assert check_policy(policy, "Shell", command("git push")) == PolicyDecision("deny", "rule", policy.rules[0])
    assert check_policy(policy, "Shell", command("git status")).decision == "allow"


@pytest.mark.parametrize(
    ("rule", "tool", "action"),
    [
        (Rule("ask", tool="Write*"), "WriteFile", EDIT),
        (Rule("ask", action="edit file"), "WriteFile", EDIT),
        (Rule("ask", match="/w/*"), "WriteFile", EDIT),
        (Rule("ask", match="git *"), "Shell", COMMAND),
        (Rule("ask", match="files/*"), "read", ProposedAction("mcp:read", "", kind="mcp", subject="files/read")),
        (Rule("ask", match="*.EXAMPLE.com"), "FetchURL", WEB),
        (Rule("ask", match="docs.example.com"), "FetchURL", replace(WEB, subject="Docs.Example.com.")),
        (Rule("ask", tool="mine"), "mine", ProposedAction("external tool", "", kind="external")),
    ],
)
def test_rules_name_tools_actions_paths_commands_servers_and_hosts(
    rule: Rule, tool: str, action: ProposedAction
) -> None:
    policy = Policy(yolo=True, rules=(rule,))
    assert check_policy(policy, tool, action) == PolicyDecision("ask", "rule", rule)
    other = replace(action, action="other", subject="elsewhere")
    assert check_policy(policy, "Other", other).decision == "allow"


def test_rule_is_written_in_one_line() -> None:
    assert str(Rule("deny", tool="Shell", match="rm *\n")) == "deny tool='Shell' match='rm *\\n'"
    assert str(Rule("ask")) == "ask"


@pytest.mark.spec("R-194")
def test_protected_action_is_allowed_by_a_rule_that_names_it_or_by_yolo_only() -> None:
    assert memory_key(PROTECTED, "action") is None
    policy = Policy().remember(PROTECTED).remember(EDIT)
    remembered = replace(policy, remembered=policy.remembered | {"edit protected file", "edit file"})
    assert check_policy(remembered, "WriteFile", PROTECTED) == PolicyDecision("ask", "default")
    wide = (Rule("allow"), Rule("allow", tool="*"), Rule("allow", action="edit*"), Rule("allow", match="/w/*"))
    assert check_policy(Policy(rules=wide), "WriteFile", PROTECTED) == PolicyDecision("ask", "default")
    by_config = replace(PROTECTED, allowed_by_config=True)
    assert check_policy(Policy(), "WriteFile", by_config) == PolicyDecision("ask", "default")
    named = Rule("allow", action="edit protected file", match="/w/.git/*")
    assert check_policy(Policy(rules=(named,)), "WriteFile", PROTECTED) == PolicyDecision("allow", "rule", named)
    assert check_policy(Policy(yolo=True), "WriteFile", PROTECTED) == PolicyDecision("allow", "yolo")


@pytest.mark.spec("R-195")
def test_web_is_asked_about_once_per_host_and_always_in_plan_mode() -> None:
    other = replace(WEB, subject="evil.example", remember_as="fetch:evil.example")
    for scope in ("action", "prefix", "exact"):
        policy = Policy(scope=scope).remember(WEB)
        assert check_policy(policy, "FetchURL", WEB) == PolicyDecision("allow", "session")
        assert check_policy(policy, "FetchURL", other) == PolicyDecision("ask", "default")
    allowed = Policy(plan=True, yolo=True, rules=(Rule("allow"),)).remember(WEB)
    assert check_policy(allowed, "FetchURL", WEB) == PolicyDecision("ask", "plan")
    assert check_policy(replace(allowed, afk=True), "FetchURL", WEB) == PolicyDecision("deny", "plan")


@pytest.mark.spec("R-195")
def test_read_only_agent_reaches_a_host_only_by_an_allow_rule_or_a_mode() -> None:
    rule = Rule("allow", tool="FetchURL", match="*.example.com")
    refused = PolicyDecision("deny", "read_only")
    assert check_policy(Policy(), "FetchURL", WEB, read_only=True) == refused
    assert check_policy(Policy().remember(WEB), "FetchURL", WEB, read_only=True) == refused
    assert check_policy(Policy(plan=True), "FetchURL", WEB, read_only=True) == refused
    assert check_policy(Policy(rules=(rule,)), "FetchURL", WEB, read_only=True) == PolicyDecision("allow", "rule", rule)
    assert check_policy(Policy(yolo=True), "FetchURL", WEB, read_only=True) == PolicyDecision("allow", "yolo")
    asked = Policy(rules=(rule, Rule("ask", match="docs.*")))
    assert check_policy(asked, "FetchURL", WEB, read_only=True) == PolicyDecision("ask", "rule", asked.rules[1])
    assert check_policy(Policy(), "ReadFile", replace(EDIT, action="read"), read_only=True).decision == "ask"


@pytest.mark.spec("R-196")
@pytest.mark.parametrize(
    ("approved", "other"),
    [
        *(("bash -c ls", "bash -c rm"), ("python3 -c 1", "python3 -c 2"), ("git -c a=1 log", "git -c b=2 log")),
        *(("sudo ls", "sudo ls -l"), ("env ls", "env ls -l"), ("xargs ls", "xargs ls -l"), ("ssh h ls", "ssh h rm")),
    ],
)
def test_prefix_scope_remembers_what_runs_others_only_as_it_stands(approved: str, other: str) -> None:
    policy = Policy(scope="prefix").remember(command(approved))
    assert check_policy(policy, "Shell", command(approved)).decision == "allow"
    assert check_policy(policy, "Shell", command(other)).decision == "ask"


modes = st.builds(
    Policy, yolo=st.booleans(), afk=st.booleans(), plan=st.booleans(), remembered=st.sets(st.just("run command"))
)
actions = st.sampled_from([COMMAND, EDIT, WEB, PROTECTED, command("ls > x; git push"), command("# it's\nrm x")])
patterns = st.one_of(st.none(), st.sampled_from(["*", "git *", "/w/*", "docs.*", "rm *", "edit protected file", "x"]))
rules = st.lists(
    st.builds(Rule, st.sampled_from(["allow", "ask", "deny"]), match=patterns, action=patterns), max_size=4
)


@given(modes, actions, rules, rules, st.booleans())
def test_more_rules_change_a_decision_only_in_their_own_direction(
    policy: Policy, action: ProposedAction, given_rules: list[Rule], added: list[Rule], read_only: bool
) -> None:
    def rank(*more: Rule) -> int:
        checked = replace(policy, remembered=frozenset(policy.remembered), rules=(*given_rules, *more))
        return RANK[check_policy(checked, "Shell", action, read_only=read_only).decision]

    assert rank(*(rule for rule in added if rule.decision != "allow")) <= rank()
    assert rank(*(rule for rule in added if rule.decision == "allow")) >= rank()


def test_an_ask_rule_does_not_let_a_read_only_agent_ask_for_the_web() -> None:
    policy = Policy(rules=(Rule("ask"),))
    assert check_policy(policy, "FetchURL", WEB, read_only=True) == PolicyDecision("deny", "read_only")


def test_a_hook_approves_what_would_be_asked_and_nothing_else() -> None:
    def decide(policy: Policy, action: ProposedAction = COMMAND, **more: bool) -> PolicyDecision:
        return check_policy(policy, "Shell", action, approved_by_hook=True, **more)

    assert decide(Policy()) == PolicyDecision("allow", "hook")
    deny, ask = Rule("deny", tool="Shell"), Rule("ask", tool="Shell")
    assert decide(Policy(rules=(ask, deny))) == PolicyDecision("deny", "rule", deny)
    assert decide(Policy(rules=(ask,))) == PolicyDecision("ask", "rule", ask)
    assert decide(Policy(plan=True)) == PolicyDecision("ask", "plan")
    assert decide(Policy(), PROTECTED) == PolicyDecision("ask", "default")
    assert decide(Policy(), remembered=False) == PolicyDecision("ask", "default")
    assert decide(Policy(), WEB, read_only=True) == PolicyDecision("deny", "read_only")


@given(words, st.integers(0, 8), st.integers(0, 8), words)
def test_pattern_with_a_star_in_place_of_a_part_matches_no_less(pattern: str, start: int, end: int, line: str) -> None:
    wider = f"{pattern[:start]}*{pattern[max(start, end) :]}"
    cases: list[tuple[Decision, int]] = [("allow", 1), ("ask", -1), ("deny", -1)]
    for decision, order in cases:
        before, after = (
            RANK[check_policy(Policy(rules=(Rule(decision, match=match),)), "Shell", command(line)).decision]
            for match in (pattern, wider)
        )
        assert before * order <= after * order


def test_many_stars_in_a_pattern_take_no_time() -> None:
    policy = Policy(rules=(Rule("deny", match="*a" * 40 + "b"), Rule("allow", match="*a" * 40 + "b")))
    subjects = ("a" * 20_000, "$(" + "a " * 20_000, "/" + "a/" * 20_000)
    for action in (command(subjects[0]), command(subjects[1]), replace(EDIT, subject=subjects[2])):
        assert check_policy(policy, "Shell", action).decision == "ask"


LOOKING = ["ls", "ls -la src/kimi", "pwd; date -u", "uname -a && whoami", "ls .github", "date +%Y-%m-%d"]
NOT_LOOKING = [
    *("ls ..", "ls /etc", "ls ~", "ls ~root", "ls a/../..", "ls *", "ls $HOME", "ls > x", "ls $(rm x)", "A=1 ls"),
    *("ls; rm x", "ls | sh", "date -s 2020-01-01", "hostname evil", "cat README.md", "git status", "echo $TOKEN"),
    *("'ls'", "ls 'a b'", "./ls", "/tmp/ls", "ls --dired", "", "uname -a x", "LD_PRELOAD=x ls", "ls `rm x`"),
]
PLAIN_EDIT = replace(EDIT, stays_inside=True)


@pytest.mark.parametrize("line", LOOKING)
def test_edits_mode_runs_commands_that_only_look(line: str) -> None:
    assert check_policy(Policy(edits=True), "Shell", command(line)) == PolicyDecision("allow", "edits")
    assert check_policy(Policy(), "Shell", command(line)).decision == "ask"
    assert check_policy(Policy(edits=True), "Shell", command(line), remembered=False).decision == "ask"
    assert check_policy(Policy(edits=True, plan=True), "Shell", command(line)).decision == "ask"
    denied = Policy(edits=True, rules=(Rule("deny", tool="Shell"),))
    assert check_policy(denied, "Shell", command(line)).decision == "deny"


@pytest.mark.parametrize("line", NOT_LOOKING)
def test_edits_mode_asks_about_every_other_command(line: str) -> None:
    assert check_policy(Policy(edits=True), "Shell", command(line)) == PolicyDecision("ask", "default")


def test_edits_mode_allows_plain_edits_of_the_workspace_only() -> None:
    policy = Policy(edits=True)
    assert check_policy(policy, "WriteFile", PLAIN_EDIT) == PolicyDecision("allow", "edits")
    assert check_policy(Policy(), "WriteFile", PLAIN_EDIT) == PolicyDecision("ask", "default")
    for other in (
        replace(PLAIN_EDIT, stays_inside=False),
        replace(PLAIN_EDIT, may_hold_secrets=True),
        replace(PLAIN_EDIT, is_protected=True),
        replace(PLAIN_EDIT, kind="web"),
        replace(PLAIN_EDIT, kind="mcp"),
        replace(PLAIN_EDIT, kind="other"),
    ):
        assert check_policy(policy, "WriteFile", other) == PolicyDecision("ask", "default")
    asked = Policy(edits=True, rules=(Rule("ask", tool="WriteFile"),))
    assert check_policy(asked, "WriteFile", PLAIN_EDIT).decision == "ask"
