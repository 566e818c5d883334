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

_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
_MAX = 64
_NINE: Final = 36**9
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def call_id_for_wire(call_id: str) -> str:
    """`call_id` as letters, digits, `_` and `-`, at most 64 of them; the same id always gives the same, and one that
    is fine is kept. What is lost is made up for by a checksum, so that two ids stay two."""
    reduced = _STRANGE.sub("_", call_id)
    if reduced == call_id and 0 < len(reduced) <= _MAX:
        return call_id
    return _with_checksum(reduced, call_id, _MAX)


def short_call_id(call_id: str, most: int = 40) -> str:
    """`call_id` cut to what chat completions of OpenAI take; one that is short enough is kept as it is."""
    return call_id if 0 < len(call_id) <= most else _with_checksum(call_id, call_id, most)


def nine_letters(call_id: str) -> str:
    """`call_id` as nine letters and digits, the only form that Mistral takes."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    data = call_id.encode(errors="replace")
    number = (zlib.crc32(data) << 32 | zlib.crc32(data[::-1])) % _NINE
    return "".join(_DIGITS[number // 36**place % 36] for place in range(9))


def with_unique_ids(history: Sequence[Message]) -> Sequence[Message]:
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
            renamed = {call.id: _unused(call.id, used, taken) for call in message.tool_calls}
            used.update(renamed.values())
            calls = tuple(replace(call, id=renamed[call.id]) for call in message.tool_calls)
            messages.append(replace(message, tool_calls=calls))
        elif message.tool_call_id in renamed:
            messages.append(replace(message, tool_call_id=renamed[message.tool_call_id]))
        else:
            messages.append(message)
    return messages


def _unused(call_id: str, used: set[str], taken: set[str]) -> str:
    """`call_id` if no earlier call has it, else one with a number that no call at all has."""
    if call_id not in used:
        return call_id
    numbered = (f"{call_id}_{number}" for number in count(2))
    return next(one for one in numbered if one not in used and one not in taken)


def name_for_wire(name: str) -> str:
    """The name of a called tool as letters, digits, `_` and `-`; models invent names with dots and blanks."""
    return _STRANGE.sub("_", name)[:_MAX] or "unknown"


def arguments_of(call: ToolCall) -> JsonDict:
    """The arguments as an object; what is none was refused by the tool, and its result says so."""
    try:
        return as_object(from_json(call.function.arguments or "{}", allow_inf_nan=False)) or {}
    except ValueError:
        return {}


def arguments_text(call: ToolCall) -> str:
    """The arguments as they were written if they are an object, else an empty one: servers parse what they get."""
    return (call.function.arguments or "{}") if arguments_of(call) else "{}"


def _with_checksum(text: str, call_id: str, most: int) -> str:
    return f"{text[: most - 9]}_{zlib.crc32(call_id.encode(errors='replace')):08x}"
