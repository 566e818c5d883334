"""What a client can do, as it said in `initialize` (acp spec 1.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class ClientAbilities:
    """The capabilities of the client; everything it did not name is off."""

    fs_read: bool = False
    fs_write: bool = False
    terminal: bool = False
    auth_terminal: bool = False
    """It can run this program in a terminal that a person sees."""
    elicitation_form: bool = False
    compaction: bool = False
    plan: bool = False


def client_abilities(raw: object) -> ClientAbilities:
    """The abilities in raw `clientCapabilities`. What is missing, null or malformed counts as none (A-23)."""
    fs, elicitation = _member(raw, "fs"), _member(raw, "elicitation")
    session = _member(raw, "session")
    return ClientAbilities(
        fs_read=_member(fs, "readTextFile") is True,
        fs_write=_member(fs, "writeTextFile") is True,
        terminal=_member(raw, "terminal") is True,
        auth_terminal=_member(_member(raw, "auth"), "terminal") is True,
        elicitation_form=_is_object(_member(elicitation, "form")),
        compaction=_is_object(_member(session, "compaction")),
        plan=_is_object(_member(session, "plan")) or _is_object(_member(raw, "plan")),
    )


def _member(value: object, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
