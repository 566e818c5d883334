"""Tool calls of a history in the form that strict providers take.

A session may go on with another provider than it began with, and models make mistakes: ids of one provider (such as
`Shell:0`), invented names and broken arguments are refused by others, and the whole history with them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from pydantic_core import from_json

from kimi.domain.content.message import Message, ToolCall
from kimi.infrastructure.models.json_object import JsonDict, as_object

_DISALLOWED_CHAR = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_CHARS = 64
_NINE_CHAR_ID_COUNT: Final = 36**9
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def sanitize_call_id(call_id: str) -> str:
    """`call_id` as letters, digits, `_` and `-`, at most 64 of them; the same id always gives the same, and one that
    is fine is kept. What is lost is made up for by a checksum, so that two ids stay two."""
    reduced = _DISALLOWED_CHAR.sub("_", call_id)
    if reduced == call_id and 0 < len(reduced) <= _MAX_CHARS:
        return call_id
    return _append_checksum(reduced, call_id, _MAX_CHARS)


def shorten_call_id(call_id: str, max_chars: int = 40) -> str:
    """`call_id` cut to what chat completions of OpenAI take; one that is short enough is kept as it is."""
    return call_id if 0 < len(call_id) <= max_chars else _append_checksum(call_id, call_id, max_chars)


def make_nine_char_id(call_id: str) -> str:
    """`call_id` as nine letters and digits, the only form that Mistral takes."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    data = call_id.encode(errors="replace")
    number = (zlib.crc32(data) << 32 | zlib.crc32(data[::-1])) % _NINE_CHAR_ID_COUNT
    return "".join(_DIGITS[number // 36**place % 36] for place in range(9))


def make_call_ids_unique(history: Sequence[Message]) -> Sequence[Message]:
    """`history`, with new ids for calls that have the id of an earlier one: some servers count anew in each answer."""
    ids = [call.id for message in history for call in message.tool_calls]
    taken = set(ids)
    if len(ids) == len(taken):
        return history
    used: set[str] = set()
    renamed: dict[str, str] = {}
    messages: list[Message] = []
    for message in history:
        if message.tool_calls:
            renamed = {call.id: _find_unused_id(call.id, used, taken) for call in message.tool_calls}
            used.update(renamed.values())
            calls = tuple(replace(call, id=renamed[call.id]) for call in message.tool_calls)
            messages.append(replace(message, tool_calls=calls))
        elif message.tool_call_id in renamed:
            messages.append(replace(message, tool_call_id=renamed[message.tool_call_id]))
        else:
            messages.append(message)
    return messages


def _find_unused_id(call_id: str, used: set[str], taken: set[str]) -> str:
    """`call_id` if no earlier call has it, else one with a number that no call at all has."""
    if call_id not in used:
        return call_id
    numbered = (f"{call_id}_{number}" for number in count(2))
    return next(one for one in numbered if one not in used and one not in taken)


def sanitize_tool_name(name: str) -> str:
    """The name of a called tool as letters, digits, `_` and `-`; models invent names with dots and blanks."""
    return _DISALLOWED_CHAR.sub("_", name)[:_MAX_CHARS] or "unknown"


def parse_arguments(call: ToolCall) -> JsonDict:
    """The arguments as an object; what is none was refused by the tool, and its result says so."""
    try:
        return as_object(from_json(call.function.arguments or "{}", allow_inf_nan=False)) or {}
    except ValueError:
        return {}


def sanitize_arguments(call: ToolCall) -> str:
    """The arguments as they were written if they are an object, else an empty one: servers parse what they get."""
    return (call.function.arguments or "{}") if parse_arguments(call) else "{}"


def _append_checksum(text: str, call_id: str, max_chars: int) -> str:
    return f"{text[: max_chars - 9]}_{zlib.crc32(call_id.encode(errors='replace')):08x}"
