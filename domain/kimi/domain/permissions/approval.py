"""Approvals: proposed actions, the policy that decides on them, and remembered approvals (tools spec 5).

Tools state a `ProposedAction`; only `check_policy` decides on it. That function is pure and monotone: a wider allow
rule never allows less, a wider deny rule never allows more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from kimi.domain.permissions.shell_line import find_visible_commands, split_simple_commands
from kimi.domain.tools.tool import DisplayBlock, ShellBlock

Decision: TypeAlias = Literal["allow", "ask", "deny"]
DecisionOrigin: TypeAlias = Literal["plan", "rule", "yolo", "afk", "session", "default"]
SessionScope: TypeAlias = Literal["action", "exact", "prefix"]
ActionKind: TypeAlias = Literal["command", "path", "mcp", "external", "web", "other"]


@dataclass(frozen=True, slots=True)
class ProposedAction:
    """The action that a prepared call would perform.

    `action` is the key that clients see and under which approval for the session is remembered. `remember_as` replaces
    it there when the visible action is too wide (an MCP call: `mcp:SERVER/TOOL`). `subject` is the text that rules
    match and narrower scopes compare: the command line, the real path, `SERVER/TOOL`, or the host of an address.
    `allowed_in_plan_mode` marks an action that plan mode allows, `allowed_by_config` one that the user's configuration
    allows like an allow rule. `is_protected` marks an action that is asked about each time: no approval for the
    session covers it, and no allow rule that does not name its action.
    """

    action: str
    description: str
    display: tuple[DisplayBlock, ...] = ()
    kind: ActionKind = "other"
    subject: str = ""
    remember_as: str | None = None
    allowed_in_plan_mode: bool = False
    allowed_by_config: bool = False
    is_protected: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the user's configuration. Patterns are shell globs; None matches anything."""

    decision: Decision
    tool: str | None = None
    action: str | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The modes, rules and remembered approvals of one conversation.

    `afk` is the away mode of the session. `unattended` means that this run of the program has no user to ask; it is
    never stored. `plan` is plan mode: commands, MCP and external calls are never approved without the user.
    """

    yolo: bool = False
    afk: bool = False
    unattended: bool = False
    plan: bool = False
    remembered: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()
    scope: SessionScope = "action"

    @property
    def is_user_absent(self) -> bool:
        """Whether there is no user who could be asked."""
        return self.afk or self.unattended

    def remember(self, proposed_action: ProposedAction) -> Policy:
        """Return this policy with the action approved for the session."""
        return replace(self, remembered=self.remembered | {memory_key(proposed_action, self.scope)})


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision on a proposed action, and the part of the policy that it comes from."""

    decision: Decision
    origin: DecisionOrigin


_PLAN_RESTRICTED_KINDS = frozenset({"command", "mcp", "external"})


def check_policy(
    policy: Policy, tool: str, proposed_action: ProposedAction, *, remembered: bool = True
) -> PolicyDecision:
    """Decide whether `tool` may perform the action.

    The first match wins, in this order: deny rules, plan mode, modes, remembered approvals, allow rules. Plan mode
    never allows a command, an MCP or an external call by itself; it denies them when the user is absent. Without
    `remembered`, remembered approvals and allow rules do not count: only yolo and afk allow.
    """
    if any(rule.decision == "deny" and _is_denied_by(rule, tool, proposed_action) for rule in policy.rules):
        return PolicyDecision("deny", "rule")
    if policy.plan and proposed_action.kind in _PLAN_RESTRICTED_KINDS and not proposed_action.allowed_in_plan_mode:
        return PolicyDecision("deny" if policy.is_user_absent else "ask", "plan")
    if proposed_action.kind == "external":
        return PolicyDecision("allow", "default")  # outside plan mode the client is responsible for its own tools
    if policy.yolo:
        return PolicyDecision("allow", "yolo")
    if policy.is_user_absent:
        return PolicyDecision("allow", "afk")
    if not remembered:
        return PolicyDecision("ask", "default")
    if memory_key(proposed_action, policy.scope) in policy.remembered:
        return PolicyDecision("allow", "session")
    if proposed_action.allowed_by_config or any(
        rule.decision == "allow" and _is_allowed_by(rule, tool, proposed_action) for rule in policy.rules
    ):
        return PolicyDecision("allow", "rule")
    return PolicyDecision("ask", "default")


def is_denied_by_rule(policy: Policy, tool: str, subject: str) -> bool:
    """Return whether a deny rule forbids a call of `tool` that needs no approval.

    `subject` has the form of `ProposedAction.subject`.
    """
    action = ProposedAction("", "", subject=subject)
    return any(rule.decision == "deny" and _is_denied_by(rule, tool, action) for rule in policy.rules)


def memory_key(proposed_action: ProposedAction, scope: SessionScope) -> str:
    """Return the key under which approval of the action for the session is stored, in this scope (tools spec 5.6)."""
    action = proposed_action.remember_as or proposed_action.action
    if scope == "action" or proposed_action.kind in ("mcp", "external"):
        return action
    return f"{action}\n{proposed_action.subject if scope == 'exact' else _memory_prefix(proposed_action)}"


def _memory_prefix(proposed_action: ProposedAction) -> str:
    if proposed_action.kind != "command":
        return os.path.dirname(proposed_action.subject)
    commands = split_simple_commands(proposed_action.subject, _shell_language(proposed_action))
    if commands is None or len(commands) != 1:
        return proposed_action.subject
    return " ".join(commands[0].split()[:2])


def _is_denied_by(rule: Rule, tool: str, proposed_action: ProposedAction) -> bool:
    """Return whether a deny rule matches any visible command of a line, or the line as a whole."""
    if not _is_covered_by(rule, tool, proposed_action):
        return False
    if rule.match is None:
        return True
    return any(fnmatchcase(subject, rule.match) for subject in _matchable_subjects(proposed_action))


def _is_allowed_by(rule: Rule, tool: str, proposed_action: ProposedAction) -> bool:
    """Return whether an allow rule matches every simple command of a line that hides no command."""
    if not _is_covered_by(rule, tool, proposed_action):
        return False
    if rule.match is None:
        return True
    if proposed_action.kind != "command":
        return fnmatchcase(proposed_action.subject, rule.match)
    commands = split_simple_commands(proposed_action.subject, _shell_language(proposed_action))
    return bool(commands) and all(fnmatchcase(command, rule.match) for command in commands or ())


def _is_covered_by(rule: Rule, tool: str, proposed_action: ProposedAction) -> bool:
    return (rule.tool is None or fnmatchcase(tool, rule.tool)) and (
        rule.action is None or fnmatchcase(proposed_action.action, rule.action)
    )


def _shell_language(proposed_action: ProposedAction) -> str:
    """Return the shell language of the command line."""
    return next((block.language for block in proposed_action.display if isinstance(block, ShellBlock)), "bash")


def _matchable_subjects(proposed_action: ProposedAction) -> Iterable[str]:
    yield proposed_action.subject
    if proposed_action.kind == "command":
        yield from find_visible_commands(proposed_action.subject)
