"""The other side of a conversation: who it is and what it can answer (wire spec 2, 3.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLIENT_TOOLS = {
    "AskUserQuestion": "supports_question",
    "EnterPlanMode": "supports_plan_mode",
    "ExitPlanMode": "supports_plan_mode",
}
"""Tools that need the client, and the capability of `Client` that each needs."""


_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Client:
    """A connected client; the defaults are those of one that never shook hands (wire spec 2.3)."""

    name: str | None = None
    version: str | None = None
    protocol_version: tuple[int, int] = (1, 0)
    supports_question: bool = False
    supports_plan_mode: bool = False
    wants_model_command: bool = False
    """Is `/model` of use to it?"""


def parse_version(text: str) -> tuple[int, int]:
    """A protocol version as two integers, compared numerically; (0, 0) for what is not one."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def user_agent_suffix(client: Client) -> str:
    """` (name version)` for a User-Agent: printable ASCII, at most 200 characters; empty without a name (W-51)."""
    words = " ".join(word for word in (client.name, client.version) if word)
    clean = "".join(char for char in words if " " <= char <= "~")[:200].strip()
    return f" ({clean})" if clean else ""
