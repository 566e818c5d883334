"""The grammar of broken input: valid messages, changed as JSON values, as text, as bytes, and in their order.

Every choice comes from a `Random` with a seed, so that a visit can be tried again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeAlias, cast

from tests.support.program.wire_process import Json

DEEP_WORD: Final = "very deep"
DEEP_TEXT: Final = b"[" * 5000 + b"]" * 5000
"""More levels than any reader takes: a few hundred depend on how deep the reader itself is called."""

MakeMessage: TypeAlias = Callable[[Random], Json]

_NO_VALUES: Final[list[Any]] = []
ODD_VALUES: Final[tuple[object, ...]] = (
    None, True, False, 0, 1, -1, 1.5, -0.0, 2**53 + 1, 2**63, -(2**64), 10**300, 1e308, 5e-324,
    "", " ", "\x00", "\ud800", "a\udfffb", "\u2028", "\x85", "😀", "é", "\ufeff", "x" * 300, "/", "..", DEEP_WORD,
    _NO_VALUES, dict[str, Any](), [_NO_VALUES], [None], {"": None}, {"type": "text"}, {"type": "nope", "text": 5},
    [{"type": "text", "text": 5}], ["x"] * 50, {"__class__": "x", "__proto__": None},
)  # fmt: skip
ODD_IDS: Final[tuple[object, ...]] = (
    None, True, False, 0, -1, 1.5, 2**70, "", " ", "\ud800", "\x00", "\u2028", "x" * 500, [], {}, ["x"], {"id": "x"},
)  # fmt: skip
TOKENS: Final = (
    "", "NaN", "Infinity", "-Infinity", "-0", "1e999", "1E-999", "9" * 4500, "01", "0x1", "null", "true", "nul",
    "{", "}", "[", "]", ":", ",", '"', "'", "\\", "\\u", "\\ud800", "\\udc00\\ud800", "\\u0000", "\\x41",
    "\x00", "\x1f", "\x7f", "\ufeff", "\u2028", "\t", "\r", "\x0b", "\x85", "//", "/* */", "[" * 250, '{"a":' * 250,
    '"id":"twice",', '"method":"cancel",', '"params":[],', '"jsonrpc":"1.0",',
)  # fmt: skip
ODD_BYTES: Final = (
    b"\xff", b"\xfe\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80", b"\x80", b"\x00", b"\n",
    b"\r", b"\r\n", b"\xef\xbb\xbf", b'"', b"{", b"}", b" ", b"\x1b[2J", b"\x04", b"\x03",
)  # fmt: skip


def make_line(source: Random, makers: Sequence[MakeMessage]) -> bytes:
    """Return a message in its line, mostly spoilt: as a value, as text, or as bytes. The line end may be gone too."""
    message = source.choice(makers)(source)
    kind = source.random()
    if kind < 0.3:
        spoil_value(source, message)
    line = json.dumps(message, ensure_ascii=source.random() < 0.7).encode("utf-8", "surrogatepass")
    line = line.replace(b'"%b"' % DEEP_WORD.encode(), DEEP_TEXT)
    if 0.3 <= kind < 0.4:
        line = spoil_text(source, line.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    elif 0.4 <= kind < 0.5:
        line = spoil_bytes(source, line)
    elif 0.5 <= kind < 0.52:
        line = b"[" + line + b"]"
    elif 0.52 <= kind < 0.54:
        line = line * 2
    end = source.random()
    return line + (b"\n" if end < 0.96 else b"\r\n" if end < 0.98 else b"\n\n" if end < 0.99 else b"")


def spoil_value(source: Random, message: Json) -> None:
    """Change one or two members of a message, at any depth: another value, another name, none, or one more level."""
    for _ in range(source.randint(1, 2)):
        place: Any = message
        while True:
            names: list[Any] = list(cast("Json", place)) if isinstance(place, dict) else [*range(_length(place))]
            if not names:
                return
            name = source.choice(names)
            if not isinstance(place[name], (dict, list)) or source.random() >= 0.75:
                break
            place = cast("Any", place[name])
        _spoil_member(source, place, name)


def _length(values: list[Any]) -> int:
    return len(values)


def _spoil_member(source: Random, place: Any, name: Any) -> None:
    change = source.randrange(5)
    if change == 0:
        del place[name]
    elif change == 1 and isinstance(place, dict):
        members = cast("Json", place)
        members[source.choice(("Method", "ID", "", "params", "id", "result", "error"))] = members.pop(name)
    elif change == 2:
        for _ in range(source.choice((1, 3, 40, 120))):
            place[name] = [place[name]] if source.random() < 0.5 else {"x": place[name]}
    else:
        place[name] = copy.deepcopy(source.choice(ODD_VALUES))


def spoil_text(source: Random, text: str) -> str:
    """Put tokens into a text, or in the place of some of its characters."""
    for _ in range(source.randint(1, 3)):
        start = source.randrange(len(text) + 1)
        text = text[:start] + source.choice(TOKENS) + text[start + source.choice((0, 0, 1, 2, 8)) :]
    return text


def spoil_bytes(source: Random, line: bytes) -> bytes:
    """Cut a line off, flip bits of it, or put bytes into it that are no text or end it early."""
    change = source.randrange(4)
    at = source.randrange(len(line) + 1)
    if change == 0:
        return line[:at]
    if change == 1 and at < len(line):
        return line[:at] + bytes([line[at] ^ (1 << source.randrange(8))]) + line[at + 1 :]
    return line[:at] + source.choice(ODD_BYTES) + line[at + source.choice((0, 0, 1, 4)) :]


def cut(source: Random, data: bytes) -> list[bytes]:
    """Cut bytes into blocks at any place, as a pipe may."""
    if source.random() < 0.5:
        return [data]
    places = sorted(source.randrange(len(data) + 1) for _ in range(source.randint(1, 4)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if end > start]
