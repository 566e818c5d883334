"""The names of tools of MCP servers: for the model, for rules and approvals, and for people (tools spec 4.8)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import Final, NamedTuple

MAX_LENGTH: Final = 64
_HASHED_PREFIX_LENGTH: Final = 55
_INVALID_CHAR: Final = re.compile(r"[^A-Za-z0-9_-]")


MAX_SHOWN_NAME: Final = 200
_SEPARATOR: Final = re.compile(r"[%/\x00-\x1f\x7f]")


class ToolOrigin(NamedTuple):
    """The server of a tool and the tool's name there."""

    server: str
    tool: str

    @property
    def subject(self) -> str:
        """`SERVER/TOOL` as rules match it. A slash or a percent sign of the server's name is written as in a URL."""
        return f"{_escape_separators(self.server)}/{self.tool}"

    @property
    def approval_key(self) -> str:
        """The key of approval for the session. No two tools share one, whatever characters their names have."""
        return f"mcp:{_escape_separators(self.server)}/{_escape_separators(self.tool)}"


def show_hidden(text: str, kept: str = "") -> str:
    r"""Return `text` with each character escaped that a screen hides or that reorders text, as in `\u202e`.

    Line breaks and tabs count as hidden, unless they are among `kept`.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else _escape_char(char) for char in text)


def show_name(name: str) -> str:
    """Return a name of a server or tool for people: on one line, without backquotes, cut with a note if it is long."""
    shown = show_hidden(name[:MAX_SHOWN_NAME]).replace("`", "\\x60")
    left_out = len(name) - MAX_SHOWN_NAME
    return shown if left_out <= 0 else f"{shown}[{left_out} more characters]"


def _escape_char(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _escape_separators(name: str) -> str:
    return _SEPARATOR.sub(lambda found: f"%{ord(found[0]):02X}", name)


def assign_exposed_names(
    origins: Sequence[ToolOrigin],
    reserved: Collection[str],
    shown_names: Mapping[ToolOrigin, str],
    *,
    always_qualify: bool = False,
    prefix: str = "mcp",
) -> dict[ToolOrigin, str]:
    """Assign each of `origins` a name that is unique, not in `reserved`, and valid for every provider.

    A tool that the model has seen keeps its name in `shown_names`. Other tools keep their own name, cleaned and
    shortened for providers. Tools that contend for one name, and tools whose name is reserved, get `mcp__SERVER__TOOL`,
    or that with another `prefix`.
    """
    wanted = {origin: _shorten_name(_sanitise_name(origin.tool), origin) for origin in origins}
    claims = Counter(name for origin, name in wanted.items() if origin not in shown_names)
    taken = {*reserved, *shown_names.values()}
    names = {origin: shown_names[origin] for origin in wanted if origin in shown_names}
    free = [origin for origin in wanted if origin not in shown_names]
    for origin in free:
        name = wanted[origin]
        if name and name not in taken and claims[name] == 1 and not always_qualify:
            names[origin] = name
    taken.update(names.values())
    for origin in free:
        if origin not in names:
            names[origin] = _qualify_name(origin, taken, prefix)
            taken.add(names[origin])
    return {origin: names[origin] for origin in wanted}


def _qualify_name(origin: ToolOrigin, taken: Collection[str], prefix: str) -> str:
    text = f"{prefix}__{_sanitise_name(origin.server)}__{_sanitise_name(origin.tool)}"
    name = _shorten_name(text, origin)
    # A server may name a tool as the hash of another would be: hashes are tried until one is free.
    for attempt in count():
        if name not in taken:
            break
        name = _append_hash(text, origin, attempt)
    return name


def _shorten_name(text: str, origin: ToolOrigin) -> str:
    return text if len(text) <= MAX_LENGTH else _append_hash(text, origin)


def _append_hash(text: str, origin: ToolOrigin, attempt: int = 0) -> str:
    """Cut `text` short and append a hash that distinguishes it from others with the same beginning."""
    named = chr(0).join((*origin, *([str(attempt)] if attempt else [])))
    digest = sha256(named.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{text[:_HASHED_PREFIX_LENGTH]}_{digest[:8]}"


def _sanitise_name(text: str) -> str:
    return _INVALID_CHAR.sub("_", text)
