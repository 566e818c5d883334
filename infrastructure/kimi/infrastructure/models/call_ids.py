"""Ids of tool calls in the form that strict providers take.

A session may go on with another provider than it began with, and ids of one (such as `Shell:0`) are refused by others.
"""

from __future__ import annotations

import re
import zlib

_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
_MAX = 64


def call_id_for_wire(call_id: str) -> str:
    """`call_id` as letters, digits, `_` and `-`, at most 64 of them; the same id always gives the same, and one that
    is fine is kept. What is lost is made up for by a checksum, so that two ids stay two."""
    reduced = _STRANGE.sub("_", call_id)
    if reduced == call_id and 0 < len(reduced) <= _MAX:
        return call_id
    checksum = f"{zlib.crc32(call_id.encode(errors='replace')):08x}"
    return f"{reduced[: _MAX - 9]}_{checksum}"
