"""Lines of `wire.jsonl`: `{"timestamp": …, "message": <envelope>}`, spliced and cut, not re-encoded (wire spec 8.1)."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from pydantic_core import from_json

from kimi.application.codec.context_line import parse_object
from kimi.application.codec.envelope import encode_json
from kimi.application.codec.payloads import decode_tool_return_value
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue

logger = logging.getLogger(__name__)
T = TypeVar("T")

PROTOCOL_VERSION = "1.10"
METADATA_LINE = b'{"type":"metadata","protocol_version":"%s"}\n' % PROTOCOL_VERSION.encode()

_CLOSING_BRACE = ord("}")
_LINE_START = re.compile(rb'\{"timestamp": ?[0-9.eE+-]+, ?"message": ?(?=\{)')


def encode_event_line(envelope: bytes, timestamp: float) -> bytes:
    """Return the line for an envelope, line end included; `timestamp` is in Unix seconds."""
    return b'{"timestamp": %s, "message": %s}\n' % (repr(float(timestamp)).encode(), envelope)


def extract_envelope(line: bytes) -> bytes | None:
    """Return the envelope in a line, byte for byte where that is possible; None if the line has none."""
    start = _LINE_START.match(line)
    if start and line[-1] == _CLOSING_BRACE:
        envelope = line[start.end() : -1]
        try:
            message: JsonObject = from_json(envelope)  # an object: the pattern has seen its first character
        except ValueError:  # it is torn, or more members follow the envelope
            pass
        else:
            if isinstance(message.get("type"), str) and isinstance(message.get("payload"), dict):
                return envelope
    other = parse_envelope(line)
    return None if other is None else encode_json(other)


def parse_envelope(line: bytes) -> JsonObject | None:
    """Parse the envelope in a line; None if the line has none."""
    source = parse_object(line)
    message = None if source is None else source.get("message")
    return message if _is_envelope(message) else None


def read_envelopes(path: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the envelopes in `lines`; a line that should have one and does not causes one warning."""
    return _read_usable(path, lines, extract_envelope)


def read_messages(path: str, lines: Iterable[bytes]) -> Iterator[JsonObject]:
    """Yield the same as `read_envelopes`, parsed."""
    return _read_usable(path, lines, parse_envelope)


def _read_usable(path: str, lines: Iterable[bytes], read: Callable[[bytes], T | None]) -> Iterator[T]:
    for number, line in enumerate(lines, 1):
        found = read(line)
        if found is not None:
            yield found
        elif line.strip() and not _is_metadata(line):
            logger.warning("line %d of %s cannot be read and is left out", number, path)


def read_timed_envelopes(path: str, lines: Iterable[bytes]) -> Iterator[tuple[bytes, float]]:
    """Yield the same as `read_envelopes`, each with its timestamp, 0 if it has no usable one."""
    latest = b""

    def noted(line: bytes) -> bytes:
        nonlocal latest
        latest = line
        return line

    for envelope in read_envelopes(path, map(noted, lines)):
        yield envelope, find_first_timestamp([latest]) or 0.0


def find_first_timestamp(lines: Iterable[bytes]) -> float | None:
    """Return the first usable timestamp in `lines`; None if there is none."""
    for line in lines:
        source = parse_object(line) or {}
        value = source.get("timestamp")
        if isinstance(value, (int, float)) and math.isfinite(value):
            return float(value)
    return None


def find_last_timestamp(lines: Iterable[bytes]) -> float:
    """Return the last usable timestamp of `lines`, which come newest first; minus infinity if there is none."""
    found = find_first_timestamp(lines)
    return -math.inf if found is None else found


def find_last_step_results(lines: Iterable[bytes]) -> dict[str, ToolReturnValue]:
    """Return the tool results since the last step or turn began, by call id; `lines` come newest first.

    The search goes no further back, because providers number their calls anew in each step.
    """
    found: dict[str, ToolReturnValue] = {}
    for line in lines:
        message = parse_envelope(line) or {}
        if message.get("type") in ("StepBegin", "TurnBegin"):
            break
        if message.get("type") == "ToolResult":
            _add_result(message["payload"], found)
    return found


def _add_result(payload: JsonObject, found: dict[str, ToolReturnValue]) -> None:
    call_id = payload.get("tool_call_id")
    try:
        result = decode_tool_return_value(payload.get("return_value"))
    except ValueError:
        return
    if isinstance(call_id, str):
        found.setdefault(call_id, result)


def _is_envelope(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    source = cast("JsonObject", value)
    return isinstance(source.get("type"), str) and isinstance(source.get("payload"), dict)


def _is_metadata(line: bytes) -> bool:
    source = parse_object(line)
    return source is not None and source.get("type") == "metadata"
