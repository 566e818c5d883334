"""The status bar at every width."""

from hypothesis import given
from hypothesis import strategies as st

from kimi.interfaces.shell.render.sanitize import cells
from kimi.interfaces.shell.render.status import Status, context_text, relative_path, short_path, status_parts

FULL = Status(
    "model", "~/work", "main", thinking=True, yolo=True, afk=True, plan=True, shell=True, tokens=4200, window=10_000,
    background=2, mcp="mcp 1/2", time="12:34", tip="/help",
)  # fmt: skip


def bar(status: Status, width: int) -> str:
    """The bar as text."""
    return "".join(text for _, text in status_parts(status, width))


def test_everything_where_there_is_room() -> None:
    assert bar(FULL, 200) == (
        "SHELL  PLAN  YOLO  AFK  model (thinking)  context: 42.0% (4.2k/10.0k)  2 in background  ~/work  main  mcp 1/2"
        "  12:34  /help"
    )


def test_what_matters_most_stays() -> None:
    assert bar(FULL, 42) == "SHELL  PLAN  YOLO  AFK  model (thinking)"
    assert bar(Status("m", "~/work", tokens=0, window=10), 40) == "m  context: 0.0% (0/10)  ~/work"


@given(st.integers(1, 120), st.text(max_size=30), st.text(max_size=30))
def test_it_always_fits(width: int, model: str, directory: str) -> None:
    assert cells(bar(Status(model, directory, tokens=10, window=100), width)) <= width


def test_figures_and_paths() -> None:
    assert context_text(1_500_000, 0) == "context: 1.5M"
    assert short_path("/home/me/x", "/home/me") == "~/x"
    assert short_path("/home/men", "/home/me") == "/home/men"
    assert relative_path("/w/a/b", "/w") == "a/b"
    assert relative_path("/other", "/w") == "/other"
