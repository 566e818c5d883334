"""Arguments read while they stream: however they are cut, what is found is what the whole text says."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.acp.updates.argument_scanner import MAX_STRING_CHARS, ArgumentScanner, decode_string_prefix

KEYS = ("path", "command", 'pa"th\\', "é")
TEXT = st.text(max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS) | TEXT, VALUES, max_size=6)


def cut(text: str, places: list[int]) -> list[str]:
    """The text in pieces."""
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(ends)]


def scanned(pieces: list[str]) -> ArgumentScanner:
    """A scanner that has seen these pieces."""
    scanner = ArgumentScanner(KEYS)
    for piece in pieces:
        scanner.feed(piece)
    return scanner


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]), st.lists(st.integers(0, 400)))
def test_scanned_values_equal_the_parsed_ones(
    value: dict[str, Any], ascii_only: bool, indent: int | None, places: list[int]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    halves = re.compile("[\ud800-\udfff]")
    strings = {key: halves.sub("\ufffd", value[key]) for key in KEYS if isinstance(value.get(key), str)}
    assert scanned(cut(text, places)).values == strings


@given(TEXT, st.integers(0, 400), st.lists(st.integers(0, 400)))
def test_a_string_that_grows_is_a_beginning_of_the_whole(value: str, length: int, places: list[int]) -> None:
    text = json.dumps({"command": value})[:length]
    scanner = scanned(cut(text, places))
    key, beginning = scanner.streaming_value or ("command", scanner.values.get("command", ""))
    assert key == "command"
    assert value.startswith(beginning)


@given(st.text(alphabet='{}[]",:\\ub0a', max_size=60), st.lists(st.integers(0, 60)))
def test_chunking_does_not_change_scanned_values(text: str, places: list[int]) -> None:
    assert scanned(cut(text, places)).values == scanned([text]).values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a":{"path":"x"}}', {}),
        ('["path","x"]', {}),
        ('"path"', {}),
        ('{"path":["x"]}', {}),
        ('{"path":"x","path":"y"}', {"path": "y"}),
        ('{"path":"x","path":3}', {}),
        ('{"path":"x', {}),
        ('{"content":"\\"path\\":\\"y\\"","path":"x"', {"path": "x"}),
        ('{"path":"\\q"}', {}),
        ('{"path":"a\\ud83d"}', {"path": "a\ufffd"}),
        ('{"path":"line\nbreak"}', {"path": "line\nbreak"}),
    ],
)
def test_unusual_json_text_is_scanned(text: str, found: dict[str, str]) -> None:
    assert scanned(list(text)).values == found


def test_a_very_long_string_is_known_by_its_beginning_only() -> None:
    scanner = scanned(['{"command":"', *["x" * 1000] * 1000])
    assert scanner.streaming_value == ("command", "x" * (MAX_STRING_CHARS + 1))
    scanner.feed('","path":"p"}')
    assert scanner.values == {"path": "p"}


@pytest.mark.parametrize("raw", ["a\\", "a\\u", "a\\u00e", "a\\ud83d", "a\\ud83d\\", "a\\ud83d\\ude0"])
def test_incomplete_escape_is_held_back(raw: str) -> None:
    assert decode_string_prefix(raw) == "a"
