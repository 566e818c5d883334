"""Under which names the tools of MCP servers reach the model (tools spec 4.8). Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

MAX_LENGTH: Final = 64
_HASHED_PREFIX_LENGTH: Final = 55
_INVALID_CHAR: Final = re.compile(r"[^A-Za-z0-9_-]")


class ToolOrigin(NamedTuple):
    """A tool as its server knows it."""

    server: str
    tool: str


def assign_exposed_names(
    origins: Sequence[ToolOrigin],
    reserved: Collection[str],
    shown_names: Mapping[ToolOrigin, str],
    *,
    always_qualify: bool = False,
) -> dict[ToolOrigin, str]:
    """A name for each of `offered`: unique, none of `reserved`, and one that every provider takes.

    What the model has seen keeps the name it has in `shown`. Otherwise a tool has its own name, as far as providers
    take it; all that contend for one name, and who wants a reserved one, get `mcp__SERVER__TOOL`.
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
            names[origin] = _qualify_name(origin, taken)
            taken.add(names[origin])
    return {origin: names[origin] for origin in wanted}


def _qualify_name(origin: ToolOrigin, taken: Collection[str]) -> str:
    text = f"mcp__{_sanitise_name(origin.server)}__{_sanitise_name(origin.tool)}"
    name = _shorten_name(text, origin)
    return _append_hash(text, origin) if name in taken else name


def _shorten_name(text: str, origin: ToolOrigin) -> str:
    return text if len(text) <= MAX_LENGTH else _append_hash(text, origin)


def _append_hash(text: str, origin: ToolOrigin) -> str:
    """`text` cut short, with what tells it from others that begin alike."""
    digest = sha256(chr(0).join(origin).encode("utf-8", "backslashreplace")).hexdigest()
    return f"{text[:_HASHED_PREFIX_LENGTH]}_{digest[:8]}"


def _sanitise_name(text: str) -> str:
    return _INVALID_CHAR.sub("_", text)
