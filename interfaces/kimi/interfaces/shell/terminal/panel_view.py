"""A panel on the screen: which menu is shown, what keys do to it, how it is drawn."""

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
    Key,
    Menu,
    Option,
    Picked,
    Step,
    Tabs,
    answer_tab,
    change_tab,
    press,
    press_number,
    type_text,
)
from kimi.interfaces.shell.render.blocks import Block, Preview
from kimi.interfaces.shell.render.paint import Painter
from kimi.interfaces.shell.render.sanitize import cut, neutral, one_line
from kimi.interfaces.shell.terminal.keys import panel_keys

TYPING_S: Final = 0.7
"""Who typed less than this long ago is typing still."""
DEAF_S: Final = 0.7
"""How long a panel that comes up then hears nothing."""
_Outcome = tuple[Picked, ...] | None


class PanelView:
    """Shows one panel at a time; those that come meanwhile wait their turn. `room`: columns and rows it may take."""

    _app: Application[None]
    _home: Buffer

    def __init__(
        self,
        painter: Painter,
        room: Callable[[], tuple[int, int]],
        redraw: Callable[[], None],
        show: Callable[[Block], None],
        interrupt: Callable[[], None],
        typed_at: Callable[[], float],
    ) -> None:
        self._painter = painter
        self._room = room
        self._redraw = redraw
        self._show = show
        self._typed_at = typed_at
        self._turn = anyio.Lock()
        self._tabs: Tabs | None = None
        self._outcome: _Outcome = None
        self._closed = anyio.Event()
        self._armed_at = 0.0
        self._drawn: tuple[Preview, int, list[str]] | None = None
        self._note = Buffer(multiline=False, accept_handler=self._entered)
        listing = FormattedTextControl(self._fragments, focusable=True, show_cursor=False)
        self._listing = Window(listing, height=self._height, dont_extend_height=True)
        self._words = Window(
            BufferControl(self._note),
            height=Dimension(min=1, max=4),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda line, wrapped: [
                ("class:panel.marked", "    > " if not line + wrapped else "      ")
            ],
        )
        is_typing = Condition(lambda: self.shown and self._menu.typing)
        self.container = HSplit([Window(height=1), self._listing, ConditionalContainer(self._words, is_typing)])
        is_shown = Condition(lambda: self.shown)
        self.keys = panel_keys(self._press, self._number, self._expand, interrupt, is_shown, is_typing)

    def attach(self, app: Application[None], home: Buffer) -> None:
        """The application it is part of, and what gets the focus when no panel is left."""
        self._app, self._home = app, home

    @property
    def shown(self) -> bool:
        """Is there a panel?"""
        return self._tabs is not None

    async def ask(self, menu: Menu) -> Picked | None:
        """Show one menu until it is answered; cancelling takes it away."""
        picked = await self.ask_all(Tabs((menu,), (None,)))
        return picked[0] if picked else None

    async def ask_all(self, tabs: Tabs) -> _Outcome:
        """The same for several."""
        async with self._turn:
            self._closed = anyio.Event()
            self._outcome = None
            now = time.monotonic()
            self._armed_at = now + DEAF_S if now - self._typed_at() < TYPING_S else now
            self._set(tabs)
            try:
                await self._closed.wait()
                return self._outcome
            finally:
                self._set(None)
                self._drawn = None

    @property
    def _is_deaf(self) -> bool:
        """Who was just typing a sentence does not mean the panel that came up under their hands."""
        return time.monotonic() < self._armed_at

    @property
    def _menu(self) -> Menu:
        assert self._tabs is not None
        return self._tabs.menu

    def _set(self, tabs: Tabs | None) -> None:
        before = self._tabs is not None and self._tabs.menu.typing
        self._tabs = tabs
        if tabs is None:
            self._app.layout.focus(self._home)
        elif tabs.menu.typing:
            if not before:
                self._note.reset()
            self._app.layout.focus(self._words)
        else:
            self._app.layout.focus(self._listing)
        self._redraw()

    def _advance(self, step: Step) -> None:
        if self._tabs is None:
            return
        outcome = answer_tab(self._tabs, step)
        if isinstance(outcome, Tabs):
            self._set(outcome)
            return
        self._outcome = outcome
        self._closed.set()

    def _press(self, key: Key) -> None:
        if self._tabs is None or self._is_deaf:
            return
        if key in ("left", "right"):
            self._set(change_tab(self._tabs, 1 if key == "right" else -1))
        else:
            self._advance(press(self._menu, key))

    def _number(self, number: int) -> None:
        if self._tabs is not None and not self._is_deaf:
            self._advance(press_number(self._menu, number))

    def _entered(self, buffer: Buffer) -> bool:
        if self._tabs is not None:
            self._advance(type_text(self._menu, buffer.text))
        return False

    def _expand(self) -> None:
        """Ctrl-E: the whole preview goes to the scrollback, where it can be read at leisure."""
        if self._tabs is not None and self._menu.preview is not None:
            self._show(self._menu.preview)
            self._set(replace(self._tabs, menus=tuple(replace(menu, preview=None) for menu in self._tabs.menus)))

    # --- drawing ------------------------------------------------------------------------------------------------

    def _height(self) -> Dimension:
        return Dimension.exact(sum(text.count("\n") for _, text, *_ in self._fragments()) + 1)

    def _fragments(self) -> StyleAndTextTuples:
        if self._tabs is None:
            return []
        columns, rows = self._room()
        menu = self._menu
        fragments: StyleAndTextTuples = []
        room = rows - 3 - bool(menu.tabs) - 2 * menu.typing  # an empty line, the title, the hint
        if menu.tabs:
            fragments += _tab_row(self._tabs, columns)
        waiting = self._turn.statistics().tasks_waiting
        more = f"  [{waiting} more]" if waiting else ""
        title = cut(one_line(menu.title, 400), columns - len(more))
        fragments.append(("class:panel.title", f"{title}{more}\n"))
        if menu.detail and menu.preview is None:
            told = menu.detail.split("\n")[: max(0, min(4, room - 3))]
            room -= len(told)
            fragments += [("", cut(one_line(line, 400), columns) + "\n") for line in told]
        shown = _window(menu, max(1, room - 2 * (menu.preview is not None)))
        fragments += self._preview(menu, room - len(shown))
        for position, option in shown:
            fragments += _option_row(menu, position, option, columns)
        fragments.append(("class:tip", cut(_hint(menu), columns)))
        return fragments

    def _preview(self, menu: Menu, room: int) -> StyleAndTextTuples:
        if menu.preview is None or room <= 0:
            return []
        lines = self._painted(menu.preview)
        if len(lines) <= room:
            return to_formatted_text(ANSI("\n".join(lines) + "\n"))
        head = to_formatted_text(ANSI("".join(f"{line}\n" for line in lines[: room - 1])))
        return [*head, ("class:tip", f"… {len(lines) - room + 1} more lines, Ctrl-E shows all\n")]

    def _painted(self, preview: Preview) -> list[str]:
        """The lines of a preview, drawn once for each width: a panel is drawn many times, and a change may be long."""
        known = self._drawn
        if known is None or known[0] is not preview or known[1] != self._painter.width:
            lines = self._painter.paint(preview).rstrip("\n").split("\n")
            self._drawn = known = (preview, self._painter.width, lines)
        return known[2]


def _tab_row(tabs: Tabs, columns: int) -> StyleAndTextTuples:
    row: StyleAndTextTuples = []
    for position, name in enumerate(tabs.menu.tabs):
        style = "class:panel.marked" if position == tabs.at else "class:tip"
        sign = "☑" if tabs.answers[position] else "☐"
        row += [(style, f"{sign} {one_line(name, max(4, columns // len(tabs.menu.tabs) - 4))}"), ("", "  ")]
    return [*row, ("", "\n")]


def _window(menu: Menu, room: int) -> list[tuple[int, Option]]:
    """The options that fit, with the marked one among them."""
    first = max(0, min(menu.at - room // 2, len(menu.options) - room))
    return list(enumerate(menu.options))[first : first + room]


def _option_row(menu: Menu, position: int, option: Option, columns: int) -> StyleAndTextTuples:
    marked = position == menu.at
    box = ("[x] " if position in menu.chosen else "[ ] ") if menu.multi else ""
    label = cut(f"{'❯' if marked else ' '} {position + 1}. {box}{one_line(option.label)}", columns)
    room = columns - len(label) - 2
    description = cut(one_line(option.description), room) if option.description and room > 8 else ""
    style = "class:panel.marked" if marked else ""
    return [(style, label), ("class:tip", f"  {description}" if description else ""), ("", "\n")]


def _hint(menu: Menu) -> str:
    if menu.typing:
        return "Enter sends, Esc goes back"
    parts = ["↑↓ Enter or a number", "Esc cancels"]
    if menu.multi:
        parts.insert(0, "Space marks")
    if menu.preview is not None:
        parts.append("Ctrl-E full view")
    if menu.toggle:
        parts.append(f"Ctrl-A {menu.toggle}")
    if menu.tabs:
        parts.append("Tab next question")
    return neutral(", ".join(parts))
