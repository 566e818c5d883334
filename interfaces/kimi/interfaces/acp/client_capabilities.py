"""The capabilities that a client declares in `initialize` (acp spec 1.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """The capabilities of the client; those that it did not name are off."""

    fs_read: bool = False
    fs_write: bool = False
    terminal: bool = False
    auth_terminal: bool = False
    """Whether the client can run this program in a terminal that the user sees."""
    elicitation_form: bool = False
    compaction: bool = False
    plan: bool = False
    slash_commands: bool = True
    """Whether prompts of this client may be slash commands; off only where it says so."""


def parse_client_capabilities(raw: object) -> ClientCapabilities:
    """Parse raw `clientCapabilities`. A capability that is missing, null or malformed is off (A-23).

    Slash commands are no capability of the client: they are on unless it turns them off.
    """
    fs, elicitation = _get_member(raw, "fs"), _get_member(raw, "elicitation")
    session = _get_member(raw, "session")
    return ClientCapabilities(
        fs_read=_get_member(fs, "readTextFile") is True,
        fs_write=_get_member(fs, "writeTextFile") is True,
        terminal=_get_member(raw, "terminal") is True,
        auth_terminal=_get_member(_get_member(raw, "auth"), "terminal") is True,
        elicitation_form=_is_object(_get_member(elicitation, "form")),
        compaction=_is_object(_get_member(session, "compaction")),
        slash_commands=_get_member(_get_member(_get_member(raw, "_meta"), "kimi"), "slashCommands") is not False,
        plan=_is_object(_get_member(session, "plan")) or _is_object(_get_member(raw, "plan")),
    )


def _get_member(value: object, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
