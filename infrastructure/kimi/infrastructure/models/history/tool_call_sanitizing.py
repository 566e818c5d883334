"""Tool calls of a history in a form that strict providers accept.

A session may continue with another provider, and models make mistakes. Providers refuse the ids of others (such as
`Shell:0`), invented tool names and malformed arguments, and with them the whole history.
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
    """Return `call_id` in letters, digits, `_` and `-`, at most 64 of them.

    A valid id is returned unchanged. A changed id ends in a checksum, so that different ids stay different, and equal
    ids stay equal.
    """
    reduced = _DISALLOWED_CHAR.sub("_", call_id)
    if reduced == call_id and 0 < len(reduced) <= _MAX_CHARS:
        return call_id
    return _append_checksum(reduced, call_id, _MAX_CHARS)


def shorten_call_id(call_id: str, max_chars: int = 40) -> str:
    """Shorten `call_id` to the length that OpenAI's chat completions accept. A shorter id is returned unchanged."""
    return call_id if 0 < len(call_id) <= max_chars else _append_checksum(call_id, call_id, max_chars)


def make_nine_char_id(call_id: str) -> str:
    """Return `call_id` as nine letters and digits, the only form that Mistral accepts."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    data = call_id.encode(errors="replace")
    number = (zlib.crc32(data) << 32 | zlib.crc32(data[::-1])) % _NINE_CHAR_ID_COUNT
    return "".join(_DIGITS[number // 36**place % 36] for place in range(9))


def make_call_ids_unique(history: Sequence[Message]) -> Sequence[Message]:
    """Return `history` with new ids for calls that repeat an id: some servers number calls anew in each answer."""
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
    """Return `call_id` if no earlier call has it, else a numbered id that no call of the history has."""
    if call_id not in used:
        return call_id
    numbered = (f"{call_id}_{number}" for number in count(2))
    return next(one for one in numbered if one not in used and one not in taken)


def sanitize_tool_name(name: str) -> str:
    """Return a tool's name in letters, digits, `_` and `-`. Models invent names with dots and blanks."""
    return _DISALLOWED_CHAR.sub("_", name)[:_MAX_CHARS] or "unknown"


def parse_arguments(call: ToolCall) -> JsonDict:
    """Parse the arguments as an object; return an empty one if they are malformed.

    The tool refused malformed arguments, and its result in the history says so.
    """
    try:
        return as_object(from_json(call.function.arguments or "{}", allow_inf_nan=False)) or {}
    except ValueError:
        return {}


def sanitize_arguments(call: ToolCall) -> str:
    """Return the arguments unchanged if they are a JSON object, else an empty object: servers parse them."""
    return (call.function.arguments or "{}") if parse_arguments(call) else "{}"


def _append_checksum(text: str, call_id: str, max_chars: int) -> str:
    return f"{text[: max_chars - 9]}_{zlib.crc32(call_id.encode(errors='replace')):08x}"
