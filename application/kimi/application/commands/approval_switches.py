"""`/yolo [on|off]` and `/afk [on|off]`: switch auto-approval and away mode (tools spec 5.4)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.parts import TextPart


async def switch_yolo(conversation: Conversation, arguments: str) -> None:
    """Switch auto-approval on or off, and store it with the session. Raises StoreFailed; nothing changes then."""
    yolo = _parse_switch(arguments, conversation.policy.yolo)
    if yolo is None:
        await conversation.events.emit(TextPart("Usage: /yolo [on|off]; without a word it switches."))
        return
    conversation.permissions.switch_modes(yolo=yolo)
    on, off = (
        "You only live once! All actions will be auto-approved.",
        "You only die once! Actions will require approval.",
    )
    await conversation.events.emit(TextPart(on if yolo else off))


async def switch_afk(conversation: Conversation, arguments: str) -> None:
    """Switch away mode on or off, in which the user is not asked and every action is approved.

    Raises StoreFailed; nothing changes then.
    """
    afk = _parse_switch(arguments, conversation.policy.afk)
    if afk is None:
        await conversation.events.emit(TextPart("Usage: /afk [on|off]; without a word it switches."))
        return
    conversation.permissions.switch_modes(afk=afk)
    on, off = "Away mode ON. Actions are approved, questions are dismissed.", "Away mode OFF. You will be asked again."
    await conversation.events.emit(TextPart(on if afk else off))


def _parse_switch(arguments: str, current: bool) -> bool | None:
    """Return the state that the arguments ask for, None when they are not understood.

    No arguments mean the opposite of `current`; `off` must never switch a mode on.
    """
    return {"": not current, "on": True, "off": False}.get(arguments.lower())
