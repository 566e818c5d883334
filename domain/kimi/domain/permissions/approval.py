"""Approvals: what a call would do, what the policy says of it, what is remembered (tools spec 5).

Tools state an `Effect`; `decide` alone judges it. The function is pure and monotone: a wider allow rule never
allows less, a wider deny rule never allows more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from kimi.domain.permissions.shell_line import simple_commands, visible_commands
from kimi.domain.tools.tool import DisplayBlock, ShellBlock

Decision: TypeAlias = Literal["allow", "ask", "deny"]
Origin: TypeAlias = Literal["plan", "rule", "yolo", "afk", "session", "default"]
SessionScope: TypeAlias = Literal["action", "exact", "prefix"]
EffectKind: TypeAlias = Literal["command", "path", "mcp", "external", "other"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a prepared call would do.

    `action` is the key that clients see and that approval for the session remembers; `remember_as` replaces it
    in the memory where the visible action is too wide (an MCP call: `mcp:SERVER/TOOL`). `subject` is what rules
    match and narrower scopes compare: the command line, the real path, or `SERVER/TOOL`. `exempt` marks what plan
    mode allows, `granted` what the person's own configuration allows like an allow rule.
    """

    action: str
    description: str
    display: tuple[DisplayBlock, ...] = ()
    kind: EffectKind = "other"
    subject: str = ""
    remember_as: str | None = None
    exempt: bool = False
    granted: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the user's own configuration; None matches anything. Patterns are shell globs."""

    decision: Decision
    tool: str | None = None
    action: str | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Modes, rules and memory of one conversation.

    `afk` is the away mode, which belongs to the session; `unattended` says that this run of the program has nobody
    to ask, and is never stored. `plan` is plan mode: commands, MCP and external calls are never approved without a
    person.
    """

    yolo: bool = False
    afk: bool = False
    unattended: bool = False
    plan: bool = False
    remembered: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()
    scope: SessionScope = "action"

    @property
    def nobody_there(self) -> bool:
        """Is there nobody who could be asked?"""
        return self.afk or self.unattended

    def remember(self, effect: Effect) -> Policy:
        """This policy with `effect` approved for the session."""
        return replace(self, remembered=self.remembered | {memory_key(effect, self.scope)})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and where it comes from."""

    decision: Decision
    origin: Origin


_RESTRAINED_BY_PLAN = frozenset({"command", "mcp", "external"})


def decide(policy: Policy, tool: str, effect: Effect, *, standing: bool = True) -> Verdict:
    """May `tool` do `effect`? The first that matches wins: deny rules, plan mode, modes, memory, allow rules.

    Plan mode never allows a command, an MCP or an external call by itself; with nobody there it denies. Without
    `standing` approval, memory and allow rules do not count: only yolo and afk allow.
    """
    if any(rule.decision == "deny" and _matches(rule, tool, effect) for rule in policy.rules):
        return Verdict("deny", "rule")
    if policy.plan and effect.kind in _RESTRAINED_BY_PLAN and not effect.exempt:
        return Verdict("deny" if policy.nobody_there else "ask", "plan")
    if effect.kind == "external":
        return Verdict("allow", "default")  # outside plan mode the client answers for its own tools
    if policy.yolo:
        return Verdict("allow", "yolo")
    if policy.nobody_there:
        return Verdict("allow", "afk")
    if not standing:
        return Verdict("ask", "default")
    if memory_key(effect, policy.scope) in policy.remembered:
        return Verdict("allow", "session")
    if effect.granted or any(rule.decision == "allow" and _allows(rule, tool, effect) for rule in policy.rules):
        return Verdict("allow", "rule")
    return Verdict("ask", "default")


def forbids(policy: Policy, tool: str, subject: str) -> bool:
    """Does a deny rule stand against a call of `tool` that nobody is asked about? `subject` is as in an effect."""
    effect = Effect("", "", subject=subject)
    return any(rule.decision == "deny" and _matches(rule, tool, effect) for rule in policy.rules)


def memory_key(effect: Effect, scope: SessionScope) -> str:
    """What approval for the session stores for `effect` in this scope (tools spec 5.6)."""
    action = effect.remember_as or effect.action
    if scope == "action" or effect.kind in ("mcp", "external"):
        return action
    return f"{action}\n{effect.subject if scope == 'exact' else _prefix(effect)}"


def _prefix(effect: Effect) -> str:
    if effect.kind != "command":
        return os.path.dirname(effect.subject)
    commands = simple_commands(effect.subject, _language(effect))
    if commands is None or len(commands) != 1:
        return effect.subject
    return " ".join(commands[0].split()[:2])


def _matches(rule: Rule, tool: str, effect: Effect) -> bool:
    """Does a deny rule match: any command that can be seen in a line, or the line as a whole?"""
    if not _names(rule, tool, effect):
        return False
    if rule.match is None:
        return True
    return any(fnmatchcase(subject, rule.match) for subject in _subjects(effect))


def _allows(rule: Rule, tool: str, effect: Effect) -> bool:
    """Does an allow rule match: every simple command of a line that holds nothing hidden?"""
    if not _names(rule, tool, effect):
        return False
    if rule.match is None:
        return True
    if effect.kind != "command":
        return fnmatchcase(effect.subject, rule.match)
    commands = simple_commands(effect.subject, _language(effect))
    return bool(commands) and all(fnmatchcase(command, rule.match) for command in commands or ())


def _names(rule: Rule, tool: str, effect: Effect) -> bool:
    return (rule.tool is None or fnmatchcase(tool, rule.tool)) and (
        rule.action is None or fnmatchcase(effect.action, rule.action)
    )


def _language(effect: Effect) -> str:
    """Of the command line."""
    return next((block.language for block in effect.display if isinstance(block, ShellBlock)), "bash")


def _subjects(effect: Effect) -> Iterable[str]:
    yield effect.subject
    if effect.kind == "command":
        yield from visible_commands(effect.subject)
