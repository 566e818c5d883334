"""`/plan [on|off|view|clear]`: switch plan mode, show or remove the plan (runtime spec 7.6)."""

from __future__ import annotations

import os

import anyio.to_thread

from kimi.application.control.plan_mode import resolve_plan_file, set_plan_mode
from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.parts import TextPart

_USAGE = "Usage: /plan [on|off|view|clear]; without a word it switches plan mode."
_NO_PLAN = "There is no plan yet."


async def run_plan_command(conversation: Conversation, arguments: str) -> None:
    """Switch plan mode, show the plan, or remove it.

    Raises StateError when there is no directory for plan files, StoreFailed.
    """
    match arguments.lower():
        case "":
            text = await _switch_plan_mode(conversation, not conversation.policy.plan)
        case "on":
            text = await _switch_plan_mode(conversation, True)
        case "off":
            text = await _switch_plan_mode(conversation, False)
        case "view":
            text = await anyio.to_thread.run_sync(_read_plan, resolve_plan_file(conversation))
        case "clear":
            text = await anyio.to_thread.run_sync(_remove_plan, resolve_plan_file(conversation))
        case _:
            text = _USAGE
    await conversation.events.emit(TextPart(text))


async def _switch_plan_mode(conversation: Conversation, enabled: bool) -> str:
    await set_plan_mode(conversation, enabled)
    if enabled:
        return f"Plan mode ON. Plan file: {resolve_plan_file(conversation)}"
    return "Plan mode OFF. All tools are now available."


def _read_plan(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() or _NO_PLAN
    except FileNotFoundError:
        return _NO_PLAN
    except OSError as error:
        return f"The plan file cannot be read: {path}: {error.strerror}"


def _remove_plan(path: str) -> str:
    try:
        os.remove(path)
    except FileNotFoundError:
        return _NO_PLAN
    except OSError as error:
        return f"The plan file cannot be removed: {path}: {error.strerror}"
    return f"The plan file {path} is removed."
