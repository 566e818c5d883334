"""A panel on the screen: shows a menu, applies keys to it, and draws it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Window
from prompt_toolkit.layout.dimension import Dimension

from kimi.interfaces.shell.panels import (
    Menu,
    MenuKey,
    MenuOption,
    MenuOutcome,
    MenuSelection,
    TabbedMenus,
    apply_menu_outcome,
    change_tab,
    enter_text,
    press_key,
    press_number,
)
from kimi.interfaces.shell.render.blocks import ApprovalPreview, Block
from kimi.interfaces.shell.render.painter import Painter
from kimi.interfaces.shell.render.sanitize import fit_one_line, neutralize, truncate_to_width
from kimi.interfaces.shell.terminal.key_bindings import create_panel_bindings

TYPING_WINDOW_S: Final = 0.7
"""Seconds after the last key in which the user counts as still typing."""
IGNORE_KEYS_S: Final = 0.7
"""Seconds for which a panel ignores keys when it appears while the user is typing."""
_Outcome = tuple[MenuSelection, ...] | None


class PanelView:
    """Shows one panel at a time; others wait for the lock. `available_size` returns the columns and rows it may use."""

    _app: Application[None]
    _input_buffer: Buffer

    def __init__(
        self,
        painter: Painter,
        available_size: Callable[[], tuple[int, int]],
        redraw: Callable[[], None],
        show: Callable[[Block], None],
        interrupt: Callable[[], None],
        typed_at: Callable[[], float],
    ) -> None:
        self._painter = painter
        self._available_size = available_size
        self._redraw = redraw
        self._show = show
        self._typed_at = typed_at
        self._panel_lock = anyio.Lock()
        self._tabs: TabbedMenus | None = None
        self._outcome: _Outcome = None
        self._closed = anyio.Event()
        self._accepts_keys_at = 0.0
        self._preview_cache: tuple[ApprovalPreview, int, list[str]] | None = None
        self._text_buffer = Buffer(multiline=False, accept_handler=self._accept_text)
        listing = FormattedTextControl(self._render_fragments, focusable=True, show_cursor=False)
        self._listing = Window(listing, height=self._compute_height, dont_extend_height=True)
        self._text_window = Window(
            BufferControl(self._text_buffer),
            height=Dimension(min=1, max=4),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda line, wrapped: [
                ("class:panel.marked", "    > " if not line + wrapped else "      ")
            ],
        )
        is_typing = Condition(lambda: self.is_shown and self._current_menu.typing)
        self.container = HSplit([Window(height=1), self._listing, ConditionalContainer(self._text_window, is_typing)])
        is_shown = Condition(lambda: self.is_shown)
        self.keys = create_panel_bindings(
            self._press_key, self._press_number, self._expand_preview, interrupt, is_shown, is_typing
        )

    def attach(self, app: Application[None], input_buffer: Buffer) -> None:
        """Connect the application, and the input that gets the focus when a panel closes."""
        self._app, self._input_buffer = app, input_buffer

    @property
    def is_shown(self) -> bool:
        """Whether a panel is shown."""
        return self._tabs is not None

    async def ask(self, menu: Menu) -> MenuSelection | None:
        """Show one menu until it is answered or dismissed; cancelling closes it."""
        picked = await self.ask_all(TabbedMenus((menu,), (None,)))
        return picked[0] if picked else None

    async def ask_all(self, tabs: TabbedMenus) -> _Outcome:
        """Show several menus until all are answered, or one is dismissed."""
        async with self._panel_lock:
            self._closed = anyio.Event()
            self._outcome = None
            now = time.monotonic()
            self._accepts_keys_at = now + IGNORE_KEYS_S if now - self._typed_at() < TYPING_WINDOW_S else now
            self._show_tabs(tabs)
            try:
                await self._closed.wait()
                return self._outcome
            finally:
                self._show_tabs(None)
                self._preview_cache = None

    @property
    def _is_ignoring_keys(self) -> bool:
        """Whether keys are ignored: a user who was typing when the panel appeared did not mean the panel."""
        return time.monotonic() < self._accepts_keys_at

    @property
    def _current_menu(self) -> Menu:
        assert self._tabs is not None
        return self._tabs.current_menu

    def _show_tabs(self, tabs: TabbedMenus | None) -> None:
        before = self._tabs is not None and self._tabs.current_menu.typing
        self._tabs = tabs
        if tabs is None:
            self._app.layout.focus(self._input_buffer)
        elif tabs.current_menu.typing:
            if not before:
                self._text_buffer.reset()
            self._app.layout.focus(self._text_window)
        else:
            self._app.layout.focus(self._listing)
        self._redraw()

    def _apply_outcome(self, menu_outcome: MenuOutcome) -> None:
        if self._tabs is None:
            return
        outcome = apply_menu_outcome(self._tabs, menu_outcome)
        if isinstance(outcome, TabbedMenus):
            self._show_tabs(outcome)
            return
        self._outcome = outcome
        self._closed.set()

    def _press_key(self, key: MenuKey) -> None:
        if self._tabs is None or self._is_ignoring_keys:
            return
        if key in ("left", "right"):
            self._show_tabs(change_tab(self._tabs, 1 if key == "right" else -1))
        else:
            self._apply_outcome(press_key(self._current_menu, key))

    def _press_number(self, number: int) -> None:
        if self._tabs is not None and not self._is_ignoring_keys:
            self._apply_outcome(press_number(self._current_menu, number))

    def _accept_text(self, buffer: Buffer) -> bool:
        if self._tabs is not None:
            self._apply_outcome(enter_text(self._current_menu, buffer.text))
        return False

    def _expand_preview(self) -> None:
        """Ctrl-E: print the whole preview to the scrollback and remove it from the panel."""
        if self._tabs is not None and self._current_menu.preview is not None:
            self._show(self._current_menu.preview)
            self._show_tabs(replace(self._tabs, menus=tuple(replace(menu, preview=None) for menu in self._tabs.menus)))

    # --- drawing ------------------------------------------------------------------------------------------------

    def _compute_height(self) -> Dimension:
        return Dimension.exact(sum(text.count("\n") for _, text, *_ in self._render_fragments()) + 1)

    def _render_fragments(self) -> StyleAndTextTuples:
        if self._tabs is None:
            return []
        columns, rows = self._available_size()
        menu = self._current_menu
        fragments: StyleAndTextTuples = []
        room = rows - 3 - bool(menu.tabs) - 2 * menu.typing  # an empty line, the title, the hint
        if menu.tabs:
            fragments += _render_tab_row(self._tabs, columns)
        waiting_tasks = self._panel_lock.statistics().tasks_waiting
        more = f"  [{waiting_tasks} more]" if waiting_tasks else ""
        title = truncate_to_width(fit_one_line(menu.title, 400), columns - len(more))
        fragments.append(("class:panel.title", f"{title}{more}\n"))
        if menu.detail and menu.preview is None:
            detail_lines = menu.detail.split("\n")[: max(0, min(4, room - 3))]
            room -= len(detail_lines)
            fragments += [("", truncate_to_width(fit_one_line(line, 400), columns) + "\n") for line in detail_lines]
        shown = _select_visible_options(menu, max(1, room - 2 * (menu.preview is not None)))
        fragments += self._render_preview(menu, room - len(shown))
        for position, option in shown:
            fragments += _render_option_row(menu, position, option, columns)
        fragments.append(("class:tip", truncate_to_width(_format_key_hint(menu), columns)))
        return fragments

    def _render_preview(self, menu: Menu, max_rows: int) -> StyleAndTextTuples:
        if menu.preview is None or max_rows <= 0:
            return []
        lines = self._paint_preview(menu.preview)
        if len(lines) <= max_rows:
            return to_formatted_text(ANSI("\n".join(lines) + "\n"))
        head = to_formatted_text(ANSI("".join(f"{line}\n" for line in lines[: max_rows - 1])))
        return [*head, ("class:tip", f"… {len(lines) - max_rows + 1} more lines, Ctrl-E shows all\n")]

    def _paint_preview(self, preview: ApprovalPreview) -> list[str]:
        """Return the lines of a preview, cached for each width: a panel is drawn often, and a diff may be long."""
        known = self._preview_cache
        if known is None or known[0] is not preview or known[1] != self._painter.width:
            lines = self._painter.paint(preview).rstrip("\n").split("\n")
            self._preview_cache = known = (preview, self._painter.width, lines)
        return known[2]


def _render_tab_row(tabs: TabbedMenus, columns: int) -> StyleAndTextTuples:
    row: StyleAndTextTuples = []
    for position, name in enumerate(tabs.current_menu.tabs):
        style = "class:panel.marked" if position == tabs.current_index else "class:tip"
        sign = "☑" if tabs.answers[position] else "☐"
        row += [(style, f"{sign} {fit_one_line(name, max(4, columns // len(tabs.current_menu.tabs) - 4))}"), ("", "  ")]
    return [*row, ("", "\n")]


def _select_visible_options(menu: Menu, max_rows: int) -> list[tuple[int, MenuOption]]:
    """Return the options that fit into `max_rows`, with the marked one among them."""
    first = max(0, min(menu.cursor - max_rows // 2, len(menu.options) - max_rows))
    return list(enumerate(menu.options))[first : first + max_rows]


def _render_option_row(menu: Menu, position: int, option: MenuOption, columns: int) -> StyleAndTextTuples:
    marked = position == menu.cursor
    box = ("[x] " if position in menu.chosen else "[ ] ") if menu.multi else ""
    label = truncate_to_width(f"{'❯' if marked else ' '} {position + 1}. {box}{fit_one_line(option.label)}", columns)
    room = columns - len(label) - 2
    description = truncate_to_width(fit_one_line(option.description), room) if option.description and room > 8 else ""
    style = "class:panel.marked" if marked else ""
    return [(style, label), ("class:tip", f"  {description}" if description else ""), ("", "\n")]


def _format_key_hint(menu: Menu) -> str:
    if menu.typing:
        return "Enter sends, Esc goes back"
    parts = ["↑↓ Enter or a number", "Esc cancels"]
    if menu.multi:
        parts.insert(0, "Space marks")
    if menu.preview is not None:
        parts.append("Ctrl-E full view")
    if menu.toggle_label:
        parts.append(f"Ctrl-A {menu.toggle_label}")
    if menu.tabs:
        parts.append("Tab next question")
    return neutralize(", ".join(parts))
