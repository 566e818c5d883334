"""`/yolo`, `/edits` and `/afk`, each with `[on|off]`: switch the approval modes (tools spec 5.4)."""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.parts import TextPart


async def switch_yolo(conversation: Conversation, arguments: str) -> None:
    """Switch auto-approval on or off, and store it with the session; off also ends edits mode, so that actions ask.

    Raises StoreFailed; nothing changes then.
    """
    yolo = _parse_switch(arguments, conversation.policy.yolo)
    if yolo is None:
        await conversation.events.emit(TextPart("Usage: /yolo [on|off]; without a word it switches."))
        return
    conversation.permissions.switch_modes(yolo=yolo, edits=None if yolo else False)
    on, off = (
        "You only live once! All actions will be auto-approved.",
        "You only die once! Actions will require approval.",
    )
    await conversation.events.emit(TextPart(on if yolo else off))


async def switch_edits(conversation: Conversation, arguments: str) -> None:
    """Switch edits mode on or off, in which only what matters is asked about; on ends auto-approval.

    Raises StoreFailed; nothing changes then.
    """
    edits = _parse_switch(arguments, conversation.policy.edits)
    if edits is None:
        await conversation.events.emit(TextPart("Usage: /edits [on|off]; without a word it switches."))
        return
    conversation.permissions.switch_modes(yolo=False if edits else None, edits=edits)
    on = "Edits mode ON. Edits in the work directory and commands that only look run; you are asked about the rest."
    still = "Edits mode OFF. Every action is approved still: /yolo off." if conversation.policy.yolo else ""
    await conversation.events.emit(TextPart(on if edits else still or "Edits mode OFF. You will be asked again."))


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
