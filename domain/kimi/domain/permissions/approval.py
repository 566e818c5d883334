"""Approvals: proposed actions, the policy that decides on them, and remembered approvals (tools spec 5).

Tools state a `ProposedAction`; only `check_policy` decides on it. That function is pure and monotone: a wider pattern
of an allow rule never allows less, a wider pattern of an ask or deny rule never allows more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from kimi.domain.tools.tool import DisplayBlock, ShellBlock

Decision: TypeAlias = Literal["allow", "ask", "deny"]
DecisionOrigin: TypeAlias = Literal["plan", "read_only", "rule", "yolo", "afk", "edits", "session", "hook", "default"]
SessionScope: TypeAlias = Literal["action", "exact", "prefix"]
ActionKind: TypeAlias = Literal["command", "path", "mcp", "plugin", "external", "web", "other"]


@dataclass(frozen=True, slots=True)
class ProposedAction:
    """The action that a prepared call would perform.

    `action` is the key that clients see and under which approval for the session is remembered. `remember_as` replaces
    it there when the visible action is too wide (an MCP call: `mcp:SERVER/TOOL`; one of a plugin: `plugin:NAME/TOOL`).
    `subject` is the text that rules match and narrower scopes compare: the command line, the real path, `SERVER/TOOL`
    (`NAME/TOOL` of a plugin), or the host of an address.
    `allowed_in_plan_mode` marks an action that plan mode allows, `allowed_by_config` one that the user's configuration
    allows like an allow rule. `is_protected` marks an action that is asked about each time: no approval for the
    session covers it, and no allow rule that does not name its action. `may_hold_secrets` marks a change of a file that
    may hold keys, `stays_inside` one of a file in the workspace.
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
    may_hold_secrets: bool = False
    stays_inside: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the user's configuration. Patterns are shell globs; None matches anything."""

    decision: Decision
    tool: str | None = None
    action: str | None = None
    match: str | None = None

    def __str__(self) -> str:
        """Return the rule in one line, as it is named to the model, to the user and in the log."""
        given = (("tool", self.tool), ("action", self.action), ("match", self.match))
        return " ".join([self.decision, *(f"{name}={text!r}" for name, text in given if text is not None)])


@dataclass(frozen=True, slots=True)
class Policy:
    """The modes, rules and remembered approvals of one conversation.

    `afk` is the away mode of the session. `unattended` means that this run of the program has no user to ask; it is
    never stored. `plan` is plan mode: commands, MCP, plugin and external calls are never approved without the user.
    `edits` is edits mode: changes of plain files in the workspace and commands that only look run, the rest is asked
    about.
    """

    yolo: bool = False
    afk: bool = False
    edits: bool = False
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
        """Return this policy with the action approved for the session, as far as that is possible."""
        key = memory_key(proposed_action, self.scope)
        return self if key is None else replace(self, remembered=self.remembered | {key})


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision on a proposed action, the part of the policy that it comes from, and the rule if it is one."""

    decision: Decision
    origin: DecisionOrigin
    rule: Rule | None = None


_PLAN_RESTRICTED_KINDS = frozenset({"command", "mcp", "plugin", "external", "web"})


def check_policy(
    policy: Policy,
    tool: str,
    proposed_action: ProposedAction,
    *,
    remembered: bool = True,
    read_only: bool = False,
    approved_by_hook: bool = False,
) -> PolicyDecision:
    """Decide whether `tool` may perform the action.

    The first match wins, in this order: deny rules, ask rules, plan mode, modes, remembered approvals, allow rules,
    hooks. An ask rule and plan mode become a refusal when there is no user to ask. Without `remembered`, remembered
    approvals, edits mode, allow rules and hooks do not count: only yolo and afk allow. A `read_only` agent is refused
    the web, without a question, unless yolo, afk or an allow rule allows it. A hook approves no protected action.
    """
    rule = find_deny_or_ask_rule(policy, tool, proposed_action)
    if rule and (rule.decision == "deny" or policy.is_user_absent):
        return PolicyDecision("deny", "rule", rule)
    allow_rule = _find_allow_rule(policy, tool, proposed_action)
    is_automatic = policy.yolo or policy.is_user_absent
    if read_only and proposed_action.kind == "web" and not (is_automatic or allow_rule):
        return PolicyDecision("deny", "read_only")  # before ask rules: a rule that asks never allows more
    if rule:
        return PolicyDecision("ask", "rule", rule)
    if policy.plan and proposed_action.kind in _PLAN_RESTRICTED_KINDS and not proposed_action.allowed_in_plan_mode:
        return PolicyDecision("deny" if policy.is_user_absent else "ask", "plan")
    if proposed_action.kind == "external":
        return PolicyDecision("allow", "default")  # outside plan mode the client is responsible for its own tools
    if is_automatic:
        return PolicyDecision("allow", "yolo" if policy.yolo else "afk")
    if not remembered:
        return PolicyDecision("ask", "default")
    if policy.edits and _is_allowed_in_edits_mode(proposed_action):
        return PolicyDecision("allow", "edits")
    if memory_key(proposed_action, policy.scope) in policy.remembered:
        return PolicyDecision("allow", "session")
    if allow_rule or (proposed_action.allowed_by_config and not proposed_action.is_protected):
        return PolicyDecision("allow", "rule", allow_rule)
    if approved_by_hook and not proposed_action.is_protected:
        return PolicyDecision("allow", "hook")
    return PolicyDecision("ask", "default")


def find_deny_or_ask_rule(policy: Policy, tool: str, proposed_action: ProposedAction) -> Rule | None:
    """Return the first deny rule that applies to the action, else the first ask rule."""
    for decision in ("deny", "ask"):
        for rule in policy.rules:
            if rule.decision == decision and _applies_to(rule, tool, proposed_action):
                return rule
    return None


def memory_key(proposed_action: ProposedAction, scope: SessionScope) -> str | None:
    """Return the key under which approval of the action for the session is stored, in this scope (tools spec 5.6).

    Return None for an action that is approved only once.
    """
    if proposed_action.is_protected:
        return None
    action = proposed_action.remember_as or proposed_action.action
    if scope == "action" or proposed_action.kind in ("mcp", "plugin", "external", "web"):
        return action
    return f"{action}\n{proposed_action.subject if scope == 'exact' else _memory_prefix(proposed_action)}"


def _memory_prefix(proposed_action: ProposedAction) -> str:
    if proposed_action.kind != "command":
        return os.path.dirname(proposed_action.subject)
    from kimi.domain.permissions.command_rules import command_prefix  # only where it is needed

    return command_prefix(proposed_action.subject, _shell_language(proposed_action))


def _applies_to(rule: Rule, tool: str, proposed_action: ProposedAction) -> bool:
    """Return whether a deny or ask rule applies to the action."""
    if not _is_covered_by(rule, tool, proposed_action):
        return False
    if rule.match is None:
        return True
    if proposed_action.kind != "command":
        return _matches_subject(rule.match, proposed_action)
    from kimi.domain.permissions.command_rules import mentions_command  # only where it is needed

    return mentions_command(rule.match, proposed_action.subject, _shell_language(proposed_action))


def _is_allowed_in_edits_mode(proposed_action: ProposedAction) -> bool:
    """Return whether the action changes a plain file in the workspace, or only looks (tools spec 5.4)."""
    if proposed_action.is_protected:
        return False
    if proposed_action.kind == "path":
        return proposed_action.stays_inside and not proposed_action.may_hold_secrets
    if proposed_action.kind != "command":
        return False
    from kimi.domain.permissions.command_rules import only_looks  # only where it is needed

    return only_looks(proposed_action.subject, _shell_language(proposed_action))


def _find_allow_rule(policy: Policy, tool: str, proposed_action: ProposedAction) -> Rule | None:
    rules = (rule for rule in policy.rules if rule.decision == "allow" and _allows(rule, tool, proposed_action))
    return next(rules, None)


def _allows(rule: Rule, tool: str, proposed_action: ProposedAction) -> bool:
    """Return whether an allow rule covers the action; of a command line it must cover every command."""
    if not _is_covered_by(rule, tool, proposed_action):
        return False
    if proposed_action.is_protected and rule.action != proposed_action.action:
        return False
    if rule.match is None:
        return True
    if proposed_action.kind != "command":
        return _matches_subject(rule.match, proposed_action)
    from kimi.domain.permissions.command_rules import covers_commands  # only where it is needed

    return covers_commands(rule.match, proposed_action.subject, _shell_language(proposed_action))


def _is_covered_by(rule: Rule, tool: str, proposed_action: ProposedAction) -> bool:
    return (rule.tool is None or fnmatchcase(tool, rule.tool)) and (
        rule.action is None or fnmatchcase(proposed_action.action, rule.action)
    )


def _matches_subject(pattern: str, proposed_action: ProposedAction) -> bool:
    if proposed_action.kind == "web":  # the names of hosts do not tell upper case from lower case
        return fnmatchcase(proposed_action.subject.lower().rstrip("."), pattern.lower().rstrip("."))
    return fnmatchcase(proposed_action.subject, pattern)


def _shell_language(proposed_action: ProposedAction) -> str:
    """Return the shell language of the command line."""
    return next((block.language for block in proposed_action.display if isinstance(block, ShellBlock)), "bash")
