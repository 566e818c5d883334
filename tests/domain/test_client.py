"""The other side of a conversation."""

from __future__ import annotations

import pytest

from kimi.domain.client import Client, parse_version, user_agent_suffix


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
def test_version_is_two_numbers_or_none(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_versions_compare_as_numbers() -> None:
    assert parse_version("1.10") > parse_version("1.9")


def test_product_header_contains_only_safe_client_names() -> None:
    assert user_agent_suffix(Client("panel", "0.2")) == " (panel 0.2)"
    assert user_agent_suffix(Client("a\nb\u00e9", None)) == " (ab)"
    assert user_agent_suffix(Client()) == ""
    assert len(user_agent_suffix(Client("x" * 500))) == 203
