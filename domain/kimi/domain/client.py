"""The client of a conversation: its name, version and capabilities (wire spec 2, 3.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLIENT_TOOLS = {
    "AskUserQuestion": "supports_question",
    "EnterPlanMode": "supports_plan_mode",
    "ExitPlanMode": "supports_plan_mode",
}
"""The tools that need the client, each with the capability of `Client` that it needs."""


_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Client:
    """A connected client; the defaults hold for a client that never sent `initialize` (wire spec 2.3)."""

    name: str | None = None
    version: str | None = None
    protocol_version: tuple[int, int] = (1, 0)
    supports_question: bool = False
    supports_plan_mode: bool = False
    supports_usage: bool = False
    """Whether the client wants the totals of tokens and costs."""
    wants_model_command: bool = False
    """Whether the client can use `/model`."""
    wants_commands: bool = True
    """Whether a prompt of this client that begins with `/name` is a command; False for one that passes on prompts."""


def parse_version(text: str) -> tuple[int, int]:
    """Parse a protocol version into two integers that compare numerically; (0, 0) if `text` is not a version."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def user_agent_suffix(client: Client) -> str:
    """Return ` (name version)` for a User-Agent; empty without a name (W-51).

    The text is printable ASCII of at most 200 characters.
    """
    words = " ".join(word for word in (client.name, client.version) if word)
    clean = "".join(char for char in words if " " <= char <= "~")[:200].strip()
    return f" ({clean})" if clean else ""
