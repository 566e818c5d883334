"""Names of MCP tools for the model (tools spec 4.8)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.tools.mcp_names import Origin, exposed_names

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

texts = st.text(st.sampled_from("ab_./ é-"), max_size=70)
origins = st.lists(st.builds(Origin, texts, texts), unique=True, max_size=12)
names = st.sets(st.sampled_from(["a", "b", "ab", "mcp__a__b", "_"]))


def named(
    *offered: tuple[str, str], reserved: tuple[str, ...] = (), shown: Mapping[Origin, str] | None = None
) -> list[str]:
    """The names of these tools, in order."""
    found = exposed_names([Origin(*one) for one in offered], reserved, shown or {})
    return list(found.values())


def test_a_name_of_its_own_is_kept() -> None:
    assert named(("s", "echo"), ("s", "other-1"), ("t", "third")) == ["echo", "other-1", "third"]


def test_who_contends_is_qualified() -> None:
    assert named(("a", "x"), ("b", "x"), ("b", "y")) == ["mcp__a__x", "mcp__b__x", "y"]
    assert named(("a", "Shell"), reserved=("Shell",)) == ["mcp__a__Shell"]
    assert named(("a", "x.y"), ("a", "x/y"))[0] == "mcp__a__x_y"
    assert named(("a b", "x"), ("c", "x"))[0] == "mcp__a_b__x"


def test_signs_that_providers_refuse_are_replaced_and_long_names_cut() -> None:
    assert named(("s", "we.ird/na me")) == ["we_ird_na_me"]
    (long,) = named(("s", "n" * 80))
    assert long.startswith("n" * 55 + "_")
    assert NAME.fullmatch(long)
    first, second = named(("s", "n" * 80), ("t", "n" * 80))
    assert first != second
    assert named(("s", "")) == ["mcp__s__"]


def test_what_the_model_has_seen_stays() -> None:
    shown = {Origin("a", "x"): "x"}
    assert named(("b", "x"), ("a", "x"), shown=shown) == ["mcp__b__x", "x"]
    assert named(("a", "x"), reserved=("x",), shown=shown) == ["x"]


def test_all_can_be_qualified() -> None:
    found = exposed_names([Origin("s", "x"), Origin("s", "y")], (), {}, always_qualify=True)
    assert list(found.values()) == ["mcp__s__x", "mcp__s__y"]


@given(origins, names)
def test_names_are_unique_usable_and_never_taken(offered: list[Origin], reserved: set[str]) -> None:
    found = exposed_names(offered, reserved, {})
    assert list(found) == offered
    assert len(set(found.values())) == len(offered)
    assert all(NAME.fullmatch(name) for name in found.values())
    assert reserved.isdisjoint(found.values())


@given(origins, origins, names)
def test_late_tools_change_no_name(first: list[Origin], later: list[Origin], reserved: set[str]) -> None:
    shown = exposed_names(first, reserved, {})
    offered = list(dict.fromkeys([*later, *first]))
    found = exposed_names(offered, reserved, shown)
    assert shown.items() <= found.items()
    assert len(set(found.values())) == len(offered)
    assert exposed_names(offered, reserved, found) == found
