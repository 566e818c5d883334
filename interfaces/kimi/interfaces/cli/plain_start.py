"""Read the command lines with which hosts and editors start the program, without the parser (R-330).

They give few options, and always in the same form (runtime spec 1.5). To load the parser takes 30 ms and 3 MB.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kimi.application.settings.flags import Flags
from kimi.domain.errors import InvalidSessionId

_SWITCHES: Final[Mapping[str, tuple[str, Any]]] = {
    "--wire": ("ui", "wire"),
    "acp": ("ui", "acp"),
    "--yolo": ("yolo", True),
    "--auto-approve": ("yolo", True),
    "--edits": ("edits", True),
    "--plan": ("plan", True),
    "--afk": ("afk", True),
    "--thinking": ("thinking", True),
    "--no-thinking": ("thinking", False),
}
_WITH_VALUE: Final[Mapping[str, str]] = {"--session": "session", "--work-dir": "work_dir", "--model": "model"}


def parse_plain_start(arguments: Sequence[str]) -> Flags | None:
    """Return the flags of a start as a wire server or an agent of an editor; None for what the parser must read.

    That is every line with another option, with an option that stands there twice, or with a mistake.
    """
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option in _SWITCHES:
            name, value = _SWITCHES[option]
        elif option in _WITH_VALUE and rest:
            name, value = _WITH_VALUE[option], rest.pop(0)
        else:
            return None
        if name in found or (option == "acp" and rest):  # options of the program stand before a command
            return None
        found[name] = value
    if "ui" not in found:
        return None
    try:
        fields: dict[str, Any] = {"work_dir": os.getcwd(), **found, **_check_values(found)}
        return Flags(**fields)
    except (ValueError, OSError, InvalidSessionId):
        return None


def _check_values(found: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what replaces values. Raises ValueError, OSError or InvalidSessionId for one that the parser must see."""
    if any(not found[name].strip() or found[name].startswith("-") for name in _WITH_VALUE.values() if name in found):
        raise ValueError
    if "session" in found:
        from kimi.domain.history.session import check_session_id  # start-up time

        check_session_id(found["session"])
    if "work_dir" not in found:
        return {}
    if not os.path.isdir(found["work_dir"]) or not os.access(found["work_dir"], os.R_OK | os.W_OK):
        raise ValueError
    return {"work_dir": os.path.abspath(found["work_dir"])}
