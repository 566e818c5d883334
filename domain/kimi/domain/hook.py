"""Hooks: their events, their matching, and the result of a hook command (runtime spec 7.5, wire spec 4.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

from kimi.domain.events.request import HookAnswer

HookEvent: TypeAlias = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "Stop",
    "StopFailure",
    "SessionStart",
    "SessionEnd",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Notification",
]
FailureVerdict: TypeAlias = Literal["allow", "block"]
"""What the failure of a hook means."""

HOOK_EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)
"""The events in the order in which clients list them."""

MIN_TIMEOUT_S: Final = 1
MAX_TIMEOUT_S: Final = 600
ALLOW: Final = HookAnswer()
BLOCKING_STATUS: Final = 2
"""The exit status with which a command blocks."""

MAX_REASON_CHARS: Final = 10_000
"""A longer reason is cut, because it goes to the model or to the user."""


@dataclass(frozen=True, slots=True)
class HookSubscription:
    """A client's subscription to a hook event; `matcher` is a regular expression searched in the event's target."""

    id: str
    event: str
    matcher: str = ""
    timeout_s: int = 30


@dataclass(frozen=True, slots=True)
class CommandHook:
    """A command line of the configuration that the shell runs; `matcher` as in `HookSubscription`.

    `on_failure` is what it means when the command fails, takes too long, or cannot be started.
    """

    event: str
    command: str
    matcher: str = ""
    timeout_s: int = 30
    on_failure: FailureVerdict = "allow"


Hook: TypeAlias = HookSubscription | CommandHook
AnyHook = TypeVar("AnyHook", HookSubscription, CommandHook)

SearchOutcome: TypeAlias = Literal["found", "absent", "invalid", "unbounded"]
SearchExpression: TypeAlias = Callable[[str, str], SearchOutcome]
"""Search a regular expression in a text, in time that grows with the text only.

`unbounded`: the expression is valid elsewhere, but what it asks for cannot be searched within such a bound.
"""

_FIRING: Final[frozenset[SearchOutcome]] = frozenset({"found", "unbounded"})


def count_hooks_by_event(hooks: Iterable[Hook]) -> dict[str, int]:
    """Count the hooks of each event that has any, in the order of `HOOK_EVENTS`."""
    events = [hook.event for hook in hooks]
    return {event: events.count(event) for event in HOOK_EVENTS if event in events}


def match_hooks(hooks: Iterable[AnyHook], event: str, target: str, search: SearchExpression) -> list[AnyHook]:
    """Return those of `hooks` that watch `event` and whose matcher is found in `target`, in their order.

    An invalid matcher never fires (W-116). One that cannot be searched within a bound always does: a hook that guards
    must not fall silent.
    """
    return [
        hook for hook in hooks if hook.event == event and (not hook.matcher or search(hook.matcher, target) in _FIRING)
    ]


def deduplicate_commands(hooks: Iterable[CommandHook]) -> list[CommandHook]:
    """Return each command line once, as the first hook that has it; it blocks on failure if any of them does."""
    first: dict[str, CommandHook] = {}
    for hook in hooks:
        kept = first.setdefault(hook.command, hook)
        if hook.on_failure == "block":
            first[hook.command] = replace(kept, on_failure="block")
    return list(first.values())


def clamp_timeout_s(hook: Hook) -> int:
    """Return the hook's timeout in seconds, clamped to the allowed range."""
    return max(MIN_TIMEOUT_S, min(hook.timeout_s, MAX_TIMEOUT_S))


def parse_hook_result(status: int, stdout: bytes, stderr: bytes) -> HookAnswer | None:
    """Interpret the end of a hook command; None if the command has failed.

    Status 2 blocks, with the text of stderr as the reason. Status 0 blocks if stdout is a JSON object that denies, has
    a permission if it is one that allows or asks, and allows if it is anything that is no object. Every other end is a
    failure, and so is an object that is broken.
    """
    if status == BLOCKING_STATUS:
        return HookAnswer("block", _truncate_reason(stderr.decode("utf-8", "replace")))
    if status != 0:
        return None
    if not stdout.strip().startswith(b"{"):
        return ALLOW
    try:
        said: Any = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    return _parse_permission(said.get("hookSpecificOutput"))


def combine_answers(answers: Sequence[HookAnswer]) -> HookAnswer:
    """Return the first block, else the first answer that asks, else the first that approves, else allow."""

    def weigh(answer: HookAnswer) -> int:
        return 3 if answer.action == "block" else {"ask": 2, "allow": 1, None: 0}[answer.permission]

    strongest = max(answers, key=weigh, default=ALLOW)  # the first of several
    return strongest if weigh(strongest) else ALLOW


def judge_failure(hook: Hook, failure: str) -> HookAnswer:
    """Return what it means that a hook has failed; `failure` says in a few words how."""
    if isinstance(hook, CommandHook) and hook.on_failure == "block":
        return HookAnswer("block", _truncate_reason(f"The hook `{hook.command}` {failure}, and so it blocks."))
    return ALLOW


def _parse_permission(output: object) -> HookAnswer:
    decision = cast("dict[str, object]", output) if isinstance(output, dict) else {}
    said = decision.get("permissionDecisionReason")
    reason = _truncate_reason(said) if isinstance(said, str) else ""
    match decision.get("permissionDecision"):
        case "deny":
            return HookAnswer("block", reason)
        case "allow":
            return HookAnswer("allow", reason, "allow")
        case "ask":
            return HookAnswer("allow", reason, "ask")
        case _:
            return ALLOW


def _truncate_reason(text: str) -> str:
    return text.strip()[:MAX_REASON_CHARS]
