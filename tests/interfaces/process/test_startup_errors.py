"""The texts for a failed start (runtime spec 1.3, 1.6)."""

from __future__ import annotations

from kimi.interfaces.process.startup_errors import format_failure, format_usage_panel


def test_panel_wraps_text_but_never_splits_a_word() -> None:
    path = "/" + "x" * 200
    lines = format_usage_panel(f"{'word ' * 40}{path}").splitlines()
    assert lines[0].startswith("Usage: kimi ")
    assert lines[1] == "Try 'kimi -h' for help."
    assert lines[2].startswith("╭─ Error ─")
    assert len({len(line) for line in lines[2:]}) == 1
    assert any(path in line for line in lines)


def test_an_error_without_text_is_named_by_its_type() -> None:
    assert format_failure(KeyError(), "log", debug=False).startswith("KeyError\n")
