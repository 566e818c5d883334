"""The status bar at every width."""

from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.shell.render.sanitize import count_cells
from kimi.interfaces.shell.render.status import (
    StatusBarState,
    abbreviate_home,
    fit_status_parts,
    format_context_usage,
    make_relative,
)

FULL = StatusBarState(
    "model", "~/work", "main", thinking=True, yolo=True, afk=True, plan=True, shell=True, tokens=4200, window=10_000,
    background=2, mcp="mcp 1/2", time="12:34", tip="/help",
)  # fmt: skip


def bar(status: StatusBarState, width: int) -> str:
    """The bar as text."""
    return "".join(text for _, text in fit_status_parts(status, width))


def test_wide_bar_shows_everything() -> None:
    assert bar(FULL, 200) == (
        "SHELL  PLAN  YOLO  AFK  model (thinking)  context: 42.0% (4.2k/10.0k)  2 in background  ~/work  main  mcp 1/2"
        "  12:34  /help"
    )


def test_narrow_bar_keeps_the_most_important_fields() -> None:
    assert bar(FULL, 42) == "SHELL  PLAN  YOLO  AFK  model (thinking)"
    assert bar(StatusBarState("m", "~/work", tokens=0, window=10), 40) == "m  context: 0.0% (0/10)  ~/work"


@given(st.integers(1, 120), st.text(max_size=30), st.text(max_size=30))
def test_bar_always_fits_the_width(width: int, model: str, directory: str) -> None:
    assert count_cells(bar(StatusBarState(model, directory, tokens=10, window=100), width)) <= width


def test_numbers_and_paths_are_shortened() -> None:
    assert format_context_usage(1_500_000, 0) == "context: 1.5M"
    assert abbreviate_home("/home/me/x", "/home/me") == "~/x"
    assert abbreviate_home("/home/men", "/home/me") == "/home/men"
    assert make_relative("/w/a/b", "/w") == "a/b"
    assert make_relative("/other", "/w") == "/other"
