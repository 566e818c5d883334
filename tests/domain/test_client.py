"""The other side of a conversation."""

from __future__ import annotations

import pytest

from kimi.domain.client import Client, parse_version, product


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.10", (1, 10)),
        ("1", (1, 0)),
        ("2.0", (2, 0)),
        ("", (0, 0)),
        ("zzz", (0, 0)),
        ("1.", (0, 0)),
        ("1.2.3", (0, 0)),
        ("٣.١", (0, 0)),
        ("9" * 5000, (0, 0)),
    ],
)
def test_versions_are_two_numbers_or_nothing(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_versions_compare_as_numbers() -> None:
    assert parse_version("1.10") > parse_version("1.9")


def test_what_a_header_may_carry_of_a_client() -> None:
    assert product(Client("panel", "0.2")) == " (panel 0.2)"
    assert product(Client("a\nb\u00e9", None)) == " (ab)"
    assert product(Client()) == ""
    assert len(product(Client("x" * 500))) == 203
