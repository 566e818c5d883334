"""Plan mode: the agent reads and plans, and changes only its plan file (runtime spec 7.6, tools spec 3.15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from kimi.domain.content.message import Message, message_text

REMINDER_PREFIX = "<system-reminder>\nPlan mode is on."
"""The beginning of every plan reminder, by which reminders are found in the history."""

SHORT_REMINDER_INTERVAL = 5
FULL_REMINDER_INTERVAL = 5
"""A short reminder follows after `SHORT_REMINDER_INTERVAL` assistant messages; every fifth reminder is a full one."""

ReminderKind: TypeAlias = Literal["full", "short"]

_ADJECTIVES = (
    "amber", "brave", "calm", "clear", "crisp", "deep", "early", "eager", "fair", "gentle", "golden", "green",
    "happy", "keen", "kind", "late", "light", "lively", "lucky", "mild", "neat", "noble", "plain", "proud",
    "quick", "quiet", "rapid", "ready", "rich", "silver", "smart", "soft", "steady", "sunny", "swift", "warm",
)  # fmt: skip
_NOUNS = (
    "apple", "badger", "beech", "birch", "bridge", "brook", "cedar", "cloud", "comet", "coral", "crane", "delta",
    "ember", "falcon", "fern", "field", "harbor", "hazel", "heron", "hill", "island", "lake", "lark", "maple",
    "meadow", "moss", "otter", "pebble", "pine", "river", "robin", "sparrow", "stone", "tide", "valley", "willow",
)  # fmt: skip


def new_plan_slug(random: Callable[[], float]) -> str:
    """Return three random words for the name of a plan file; `random` returns numbers in [0, 1)."""
    words = (_ADJECTIVES, _ADJECTIVES, _NOUNS)
    return "-".join(choice[int(random() * len(choice))] for choice in words)


def choose_plan_reminder(messages: Sequence[Message]) -> ReminderKind | None:
    """Decide which reminder the model needs before its next step: a full one first, short ones later.

    The search goes back no further than to the last full reminder.
    """
    spoken, shorts = 0, 0
    for message in reversed(messages):
        if message.role == "assistant" and not shorts:
            spoken += 1
        elif message.role == "user" and REMINDER_PREFIX in (text := message_text(message)):
            if spoken < SHORT_REMINDER_INTERVAL and not shorts:
                return None
            if _is_full_reminder(text):
                return "full" if shorts + 1 >= FULL_REMINDER_INTERVAL else "short"
            shorts += 1
    return "short" if shorts else "full"


def _is_full_reminder(text: str) -> bool:
    return "How to work in it" in text


def format_plan_reminder(kind: ReminderKind, plan_file: str, *, exists: bool) -> str:
    """Format a reminder, tags included."""
    if kind == "short":
        body = f" Change nothing but the plan file `{plan_file}`; call ExitPlanMode when the plan is ready."
    else:
        body = _FULL_REMINDER_BODY.format(
            plan_file=plan_file, state=_FILE_EXISTS_NOTE if exists else _FILE_MISSING_NOTE
        )
    return f"{REMINDER_PREFIX}{body}\n</system-reminder>"


_FILE_EXISTS_NOTE = "It exists already: read it first, then go on from there."
_FILE_MISSING_NOTE = "It does not exist yet: create it with WriteFile."
_FULL_REMINDER_BODY = """ The person wants a plan before anything is changed.

How to work in it:
- Read, search and think as much as you need. Do not change files, run commands that change anything, or commit.
- Write the plan to `{plan_file}`, the only file that you may change. {state}
- Say in it what will be done, where, in which order, and how it will be checked. Keep it as short as it can be.
- Where the person has to choose, ask with AskUserQuestion.
- When the plan is ready, call ExitPlanMode and wait for the decision. Do not ask for approval in plain text."""
