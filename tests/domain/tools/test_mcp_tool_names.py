"""Names of MCP tools for the model (tools spec 4.8)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.tools.mcp_tool_names import ToolOrigin, assign_exposed_names, show_hidden, show_name

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

texts = st.text(st.sampled_from("ab_./ é-"), max_size=70)
wild = st.text(st.sampled_from("ab/%2F\n\x00"), max_size=4)
origins = st.lists(st.builds(ToolOrigin, texts, texts), unique=True, max_size=12)
names = st.sets(st.sampled_from(["a", "b", "ab", "mcp__a__b", "_"]))


def named(
    *offered: tuple[str, str], reserved: tuple[str, ...] = (), shown: Mapping[ToolOrigin, str] | None = None
) -> list[str]:
    """The names of these tools, in order."""
    found = assign_exposed_names([ToolOrigin(*one) for one in offered], reserved, shown or {})
    return list(found.values())


def test_unique_name_is_kept() -> None:
    assert named(("s", "echo"), ("s", "other-1"), ("t", "third")) == ["echo", "other-1", "third"]


def test_conflicting_names_are_qualified() -> None:
    assert named(("a", "x"), ("b", "x"), ("b", "y")) == ["mcp__a__x", "mcp__b__x", "y"]
    assert named(("a", "Shell"), reserved=("Shell",)) == ["mcp__a__Shell"]
    assert named(("a", "x.y"), ("a", "x/y"))[0] == "mcp__a__x_y"
    assert named(("a b", "x"), ("c", "x"))[0] == "mcp__a_b__x"


def test_refused_characters_are_replaced_and_long_names_cut() -> None:
    assert named(("s", "we.ird/na me")) == ["we_ird_na_me"]
    (long,) = named(("s", "n" * 80))
    assert long.startswith("n" * 55 + "_")
    assert NAME.fullmatch(long)
    first, second = named(("s", "n" * 80), ("t", "n" * 80))
    assert first != second
    assert named(("s", "")) == ["mcp__s__"]


def test_names_shown_to_the_model_are_kept() -> None:
    shown = {ToolOrigin("a", "x"): "x"}
    assert named(("b", "x"), ("a", "x"), shown=shown) == ["mcp__b__x", "x"]
    assert named(("a", "x"), reserved=("x",), shown=shown) == ["x"]


def test_name_that_imitates_the_hash_of_another_is_kept_apart() -> None:
    (qualified,) = named(("a", "x" * 80), reserved=tuple(named(("a", "x" * 80))))
    others = [("b", qualified), ("a", "x" * 80), ("c", "x" * 80)]
    assert len({*named(*others), *named(*others, reserved=(qualified,))}) >= 3
    assert len(set(named(*others, reserved=(qualified,)))) == 3


@pytest.mark.spec("R-227")
@given(wild, wild, wild, wild)
def test_two_tools_never_share_a_key_or_a_subject(server: str, tool: str, other: str, other_tool: str) -> None:
    one, two = ToolOrigin(server, tool), ToolOrigin(other, other_tool)
    assert (one.approval_key == two.approval_key) == (one == two)
    assert (one.subject == two.subject) == (one == two)
    assert not re.search(r"[\x00-\x1f\x7f]", one.approval_key)


def test_key_of_an_ordinary_name_is_its_name() -> None:
    assert ToolOrigin("github", "create issue").approval_key == "mcp:github/create issue"
    assert ToolOrigin("a", "ü-1_x.y").approval_key == "mcp:a/ü-1_x.y"
    assert ToolOrigin("a", "b/c").approval_key == "mcp:a/b%2Fc"
    assert ToolOrigin("a/b", "c").approval_key == "mcp:a%2Fb/c"
    assert (ToolOrigin("a", "b/c").subject, ToolOrigin("a/b", "c").subject) == ("a/b/c", "a%2Fb/c")


def test_shown_name_is_one_line_without_hidden_characters() -> None:
    assert show_name("create issue") == "create issue"
    assert show_name("x`\n\tApproved by \u202eyou\u200b\x1b[2J") == r"x\x60\n\tApproved by \u202eyou\u200b\x1b[2J"
    assert show_name("x" * 300) == "x" * 200 + "[100 more characters]"
    assert show_hidden("a\n\tb\r\u2028", "\n\t") == "a\n\tb\\r\\u2028"


def test_all_names_can_be_qualified() -> None:
    found = assign_exposed_names([ToolOrigin("s", "x"), ToolOrigin("s", "y")], (), {}, always_qualify=True)
    assert list(found.values()) == ["mcp__s__x", "mcp__s__y"]


@given(origins, names)
def test_exposed_names_are_unique_valid_and_not_reserved(offered: list[ToolOrigin], reserved: set[str]) -> None:
    found = assign_exposed_names(offered, reserved, {})
    assert list(found) == offered
    assert len(set(found.values())) == len(offered)
    assert all(NAME.fullmatch(name) for name in found.values())
    assert reserved.isdisjoint(found.values())


@given(origins, origins, names)
def test_late_tools_change_no_name(first: list[ToolOrigin], later: list[ToolOrigin], reserved: set[str]) -> None:
    shown = assign_exposed_names(first, reserved, {})
    offered = list(dict.fromkeys([*later, *first]))
    found = assign_exposed_names(offered, reserved, shown)
    assert shown.items() <= found.items()
    assert len(set(found.values())) == len(offered)
    assert assign_exposed_names(offered, reserved, found) == found
