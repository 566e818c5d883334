"""The names under which the tools of MCP servers reach the model (tools spec 4.8)."""

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
    """The server of a tool and the tool's name there."""

    server: str
    tool: str


def assign_exposed_names(
    origins: Sequence[ToolOrigin],
    reserved: Collection[str],
    shown_names: Mapping[ToolOrigin, str],
    *,
    always_qualify: bool = False,
) -> dict[ToolOrigin, str]:
    """Assign each of `origins` a name that is unique, not in `reserved`, and valid for every provider.

    A tool that the model has seen keeps its name in `shown_names`. Other tools keep their own name, cleaned and
    shortened for providers. Tools that contend for one name, and tools whose name is reserved, get `mcp__SERVER__TOOL`.
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
    """Cut `text` short and append a hash that distinguishes it from others with the same beginning."""
    digest = sha256(chr(0).join(origin).encode("utf-8", "backslashreplace")).hexdigest()
    return f"{text[:_HASHED_PREFIX_LENGTH]}_{digest[:8]}"


def _sanitise_name(text: str) -> str:
    return _INVALID_CHAR.sub("_", text)
