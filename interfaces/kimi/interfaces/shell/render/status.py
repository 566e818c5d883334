"""The parts of the status bar, and which of them are left out on a narrow terminal."""

from __future__ import annotations

from dataclasses import dataclass

from kimi.domain.turn import format_count
from kimi.interfaces.shell.render.sanitize import count_cells, neutralize, truncate_to_width

StyledText = tuple[str, str]
"""A style class and its text."""


@dataclass(frozen=True, slots=True)
class StatusBarState:
    """The values in the status bar. Tokens are counts; `tip` is left out first."""

    model: str
    directory: str
    branch: str = ""
    thinking: bool = False
    yolo: bool = False
    afk: bool = False
    edits: bool = False
    plan: bool = False
    shell: bool = False
    tokens: int = 0
    window: int = 0
    cost: str = ""
    background: int = 0
    mcp: str = ""
    time: str = ""
    tip: str = ""


def fit_status_parts(status: StatusBarState, width: int) -> list[StyledText]:
    """Return the bar for a terminal of `width` columns, most important part first; what does not fit is left out."""
    parts: list[StyledText] = []
    room = width
    for style, text in _list_status_parts(status):
        gap = 2 if parts else 0
        if count_cells(text) + gap > room and not parts:
            text = truncate_to_width(text, room)
        if count_cells(text) + gap <= room and text:
            parts += [("", " " * gap)] * bool(gap) + [(style, text)]
            room -= count_cells(text) + gap
    return parts


def _list_status_parts(status: StatusBarState) -> list[StyledText]:
    wanted: list[StyledText] = []
    edits = status.edits and not (status.yolo or status.afk)
    badges = (
        ("SHELL", status.shell), ("PLAN", status.plan), ("YOLO", status.yolo), ("AFK", status.afk), ("EDITS", edits)
    )  # fmt: skip
    wanted += [(f"class:badge.{name.lower()}", f"{name}") for name, on in badges if on]
    model = neutralize(status.model) + (" (thinking)" if status.thinking else "")
    wanted.append(("class:status", model))
    wanted.append(("class:status", format_context_usage(status.tokens, status.window)))
    if status.cost:
        wanted.append(("class:status", status.cost))
    if status.background:
        wanted.append(("class:status", f"{status.background} in background"))
    wanted += [("class:status", neutralize(text)) for text in (status.directory, status.branch, status.mcp) if text]
    wanted += [("class:status", status.time)] if status.time else []
    wanted += [("class:tip", status.tip)] if status.tip else []
    return wanted


def format_context_usage(tokens: int, window: int) -> str:
    """Format the context usage: `context: 42.0% (4.2k/10.0k)`."""
    if window <= 0:
        return f"context: {format_count(tokens)}"
    return f"context: {tokens / window * 100:.1f}% ({format_count(tokens)}/{format_count(window)})"


def abbreviate_home(path: str, home: str) -> str:
    """Return `path` with `~` in place of the home directory."""
    return "~" + path[len(home) :] if home and (path == home or path.startswith(home.rstrip("/") + "/")) else path


def make_relative(path: str, root: str) -> str:
    """Return `path` relative to `root` when it is below it, else unchanged."""
    return path[len(root) + 1 :] if root and path.startswith(root.rstrip("/") + "/") else path
