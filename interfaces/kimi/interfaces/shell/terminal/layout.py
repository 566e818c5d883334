"""The layout below the scrollback: open blocks, panel or input, completions, status bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import VerticalAlign
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from kimi.interfaces.shell.render.painter import ThemeName
from kimi.interfaces.shell.render.sanitize import count_cells
from kimi.interfaces.shell.terminal.panel_view import PanelView

MAX_INPUT_LINES = 8

_COMMON: Mapping[str, str] = {
    "tip": "ansibrightblack",
    "status": "ansibrightblack",
    "queued": "ansibrightblack",
    "notice": "ansiyellow",
    "panel.title": "bold",
    "badge.yolo": "ansired bold",
    "badge.afk": "ansired bold",
    "badge.edits": "ansiyellow bold",
    "badge.plan": "ansimagenta bold",
    "badge.shell": "ansiyellow bold",
    "sign.shell": "ansiyellow bold",
    "sign.plan": "ansimagenta bold",
    "completion-menu": "noinherit",
    "completion-menu.completion": "noinherit",
    "completion-menu.completion.current": "noinherit reverse",
    "completion-menu.meta.completion": "noinherit ansibrightblack",
    "completion-menu.meta.completion.current": "noinherit reverse",
    "scrollbar.background": "noinherit",
    "scrollbar.button": "noinherit reverse",
}
_ACCENTED = ("sign", "sign.thinking", "spinner", "panel.marked")


def _build_style(accent: str) -> Style:
    return Style.from_dict({**_COMMON, **dict.fromkeys(_ACCENTED, accent)})


STYLES: Mapping[ThemeName, Style] = {"dark": _build_style("ansicyan bold"), "light": _build_style("ansiblue bold")}


@dataclass(frozen=True, slots=True)
class ScreenParts:
    """The content of the rows around the input; the functions are called at each drawing."""

    live: Callable[[], StyleAndTextTuples]
    live_height: Callable[[], int]
    queued: Callable[[], Sequence[str]]
    prompt_sign: Callable[[], tuple[str, str]]
    status: Callable[[], StyleAndTextTuples]
    notice: Callable[[], str]


def build_screen_layout(buffer: Buffer, panel: PanelView, parts: ScreenParts, panel_hidden: Condition) -> Layout:
    """Return the layout. The input is shown while `panel_hidden` holds."""
    search = SearchToolbar()
    entry = Window(
        BufferControl(buffer, search_buffer_control=search.control, preview_search=True),
        height=Dimension(min=1, max=MAX_INPUT_LINES),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=lambda line, wrapped: _build_line_prefix(parts.prompt_sign(), line, wrapped),
    )
    live = Window(
        FormattedTextControl(parts.live),
        height=lambda: Dimension.exact(parts.live_height()),
        dont_extend_height=True,
    )
    rows = [
        ConditionalContainer(live, Condition(lambda: parts.live_height() > 0)),
        _build_lines_window(parts.queued, "class:queued"),
        ConditionalContainer(panel.container, ~panel_hidden),
        ConditionalContainer(HSplit([Window(height=1), entry]), panel_hidden),
        ConditionalContainer(search, panel_hidden),
        ConditionalContainer(CompletionsMenu(max_height=8), panel_hidden),
        _build_lines_window(lambda: [parts.notice()] if parts.notice() else [], "class:notice"),
        Window(FormattedTextControl(parts.status), height=1, dont_extend_height=True),
    ]
    return Layout(HSplit(rows, align=VerticalAlign.TOP), focused_element=entry)


def _build_line_prefix(sign: tuple[str, str], line: int, wrapped: int) -> StyleAndTextTuples:
    style, text = sign
    return [(style, text)] if line == 0 and wrapped == 0 else [("", " " * count_cells(text))]


def _build_lines_window(lines: Callable[[], Sequence[str]], style: str) -> ConditionalContainer:
    window = Window(
        FormattedTextControl(lambda: [(style, "\n".join(lines()))]),
        height=lambda: Dimension.exact(len(lines())),
        dont_extend_height=True,
    )
    return ConditionalContainer(window, Condition(lambda: bool(lines())))
