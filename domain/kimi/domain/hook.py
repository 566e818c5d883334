"""Hooks: the events that can be watched or blocked, and who watches them (wire spec 4.5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HOOK_EVENTS = (
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
)
"""The events in the order in which clients list them."""


@dataclass(frozen=True, slots=True)
class HookSubscription:
    """A client's wish to be asked; `matcher` is a regular expression searched in the event's target."""

    id: str
    event: str
    matcher: str = ""
    timeout_s: int = 30


def counted(subscriptions: Iterable[HookSubscription]) -> dict[str, int]:
    """How many subscriptions there are for each event that has any, in the order of `HOOK_EVENTS`."""
    events = [subscription.event for subscription in subscriptions]
    return {event: events.count(event) for event in HOOK_EVENTS if event in events}
