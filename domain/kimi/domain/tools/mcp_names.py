"""Under which names the tools of MCP servers reach the model (tools spec 4.8). Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

MAX_LENGTH: Final = 64
_CUT: Final = 55
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


class Origin(NamedTuple):
    """A tool as its server knows it."""

    server: str
    tool: str


def exposed_names(
    offered: Sequence[Origin],
    reserved: Collection[str],
    shown: Mapping[Origin, str],
    *,
    always_qualify: bool = False,
) -> dict[Origin, str]:
    """A name for each of `offered`: unique, none of `reserved`, and one that every provider takes.

    What the model has seen keeps the name it has in `shown`. Otherwise a tool has its own name, as far as providers
    take it; all that contend for one name, and who wants a reserved one, get `mcp__SERVER__TOOL`.
    """
    wanted = {origin: _fitting(_clean(origin.tool), origin) for origin in offered}
    claims = Counter(name for origin, name in wanted.items() if origin not in shown)
    taken = {*reserved, *shown.values()}
    names = {origin: shown[origin] for origin in wanted if origin in shown}
    free = [origin for origin in wanted if origin not in shown]
    for origin in free:
        name = wanted[origin]
        if name and name not in taken and claims[name] == 1 and not always_qualify:
            names[origin] = name
    taken.update(names.values())
    for origin in free:
        if origin not in names:
            names[origin] = _qualified(origin, taken)
            taken.add(names[origin])
    return {origin: names[origin] for origin in wanted}


def _qualified(origin: Origin, taken: Collection[str]) -> str:
    text = f"mcp__{_clean(origin.server)}__{_clean(origin.tool)}"
    name = _fitting(text, origin)
    return _marked(text, origin) if name in taken else name


def _fitting(text: str, origin: Origin) -> str:
    return text if len(text) <= MAX_LENGTH else _marked(text, origin)


def _marked(text: str, origin: Origin) -> str:
    """`text` cut short, with what tells it from others that begin alike."""
    return f"{text[:_CUT]}_{sha256(chr(0).join(origin).encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def _clean(text: str) -> str:
    return _FOREIGN.sub("_", text)
