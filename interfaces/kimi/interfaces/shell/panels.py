"""Panels with questions to the user, as pure functions: `(menu, key) -> menu or answer`. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from kimi.domain.events.request import (
    ApprovalAnswer,
    ApprovalRequest,
    Question,
    QuestionAnswer,
    QuestionRequest,
)
from kimi.domain.tools.tool import BriefBlock, DiffBlock, ShellBlock
from kimi.interfaces.shell.render.blocks import ApprovalPreview

_Item = TypeVar("_Item")
MenuKey: TypeAlias = Literal["up", "down", "left", "right", "enter", "escape", "space", "toggle"]


@dataclass(frozen=True, slots=True)
class MenuOption:
    """One option of a menu. With `wants_text` the user enters text after choosing it."""

    label: str
    description: str = ""
    wants_text: bool = False


@dataclass(frozen=True, slots=True)
class MenuSelection:
    """The chosen options by their positions, and the entered text. `toggled`: Ctrl-A was pressed instead."""

    positions: tuple[int, ...]
    text: str = ""
    toggled: bool = False


@dataclass(frozen=True, slots=True)
class Menu:
    """A list of options with one marked by the cursor.

    `typing`: the user enters the text of the marked option. `chosen` is used with `multi` only. `toggle_label` says
    what Ctrl-A does; empty means nothing.
    """

    title: str
    options: tuple[MenuOption, ...]
    detail: str = ""
    preview: ApprovalPreview | None = None
    multi: bool = False
    cursor: int = 0
    chosen: frozenset[int] = frozenset()
    typing: bool = False
    text: str = ""
    toggle_label: str = ""
    tabs: tuple[str, ...] = ()
    tab: int = 0


MenuOutcome: TypeAlias = Menu | MenuSelection | None
"""The changed menu, the selection that answers it, or None when it was dismissed."""


def press_key(menu: Menu, key: MenuKey) -> MenuOutcome:
    """Apply a key to a menu. While the user enters text, only Escape is passed here; it goes back to the list."""
    if key == "escape":
        return replace(menu, typing=False) if menu.typing else None
    if key == "enter":
        return _accept_option(menu)
    if key in ("up", "down"):
        step = 1 if key == "down" else -1
        return replace(menu, cursor=(menu.cursor + step) % max(1, len(menu.options)), typing=False)
    if key == "space" and menu.multi:
        return replace(menu, chosen=menu.chosen ^ {menu.cursor})
    if key == "space" and menu.preview is None:  # an approval wants a key that nobody hits by chance
        return _accept_option(menu)
    if key == "toggle" and menu.toggle_label:
        return MenuSelection((), toggled=True)
    return menu


def press_number(menu: Menu, number: int) -> MenuOutcome:
    """Choose the option with this number, counted from 1; other numbers change nothing."""
    if not 1 <= number <= len(menu.options):
        return menu
    menu = replace(menu, cursor=number - 1)
    if menu.multi and not menu.options[menu.cursor].wants_text:
        return replace(menu, chosen=menu.chosen ^ {menu.cursor})
    return _accept_option(menu)


def enter_text(menu: Menu, text: str) -> MenuOutcome:
    """Accept the text for the marked option; blank text goes back to the list."""
    if not text.strip():
        return replace(menu, typing=False)
    if menu.multi:
        return MenuSelection(tuple(sorted(menu.chosen | {menu.cursor})), text.strip())
    return MenuSelection((menu.cursor,), text.strip())


def _accept_option(menu: Menu) -> MenuOutcome:
    if not menu.options:
        return None
    if menu.options[menu.cursor].wants_text:
        return replace(menu, typing=True)
    if menu.multi:
        return MenuSelection(tuple(sorted(menu.chosen or {menu.cursor})))
    return MenuSelection((menu.cursor,))


# --- approvals --------------------------------------------------------------------------------------------------

APPROVAL_OPTIONS = (
    MenuOption("Approve once"),
    MenuOption("Approve for this session"),
    MenuOption("Reject"),
    MenuOption("Reject, and say what to do instead", wants_text=True),
)


def build_approval_menu(request: ApprovalRequest) -> Menu:
    """Return the menu of an approval request."""
    by = f" (subagent {request.subagent_type})" if request.subagent_type else ""
    if request.source_description:
        by += f" - {request.source_description}"
    is_shown = any(isinstance(block, DiffBlock | ShellBlock | BriefBlock) for block in request.display)
    preview = ApprovalPreview(request.display, "" if is_shown else request.description)
    # The action before what a model may have written at length.
    title = f"{request.sender} wants to: {request.action}{by}"
    return Menu(title, APPROVAL_OPTIONS, detail=request.description, preview=preview)


def build_approval_answer(picked: MenuSelection | None) -> ApprovalAnswer:
    """Return the decision of the user; a dismissed panel rejects."""
    position = picked.positions[0] if picked and picked.positions else 2
    if position == 0:
        return ApprovalAnswer("approve")
    if position == 1:
        return ApprovalAnswer("approve_for_session")
    return ApprovalAnswer("reject", picked.text if picked else "")


# --- questions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TabbedMenus:
    """Several menus, one of them shown. The user must answer all."""

    menus: tuple[Menu, ...]
    answers: tuple[MenuSelection | None, ...]
    current_index: int = 0

    @property
    def current_menu(self) -> Menu:
        """The menu that is shown."""
        return self.menus[self.current_index]


def build_question_menus(request: QuestionRequest) -> TabbedMenus:
    """Return the menus of a question request, one for each question."""
    titles = tuple(question.header or f"Question {n}" for n, question in enumerate(request.questions, start=1))
    shown = titles if len(titles) > 1 else ()
    menus = tuple(_build_question_menu(question, shown, n) for n, question in enumerate(request.questions))
    return TabbedMenus(menus, (None,) * len(menus))


def _build_question_menu(question: Question, tabs: tuple[str, ...], tab: int) -> Menu:
    options = [MenuOption(option.label, option.description) for option in question.options]
    other = MenuOption(
        question.other_label or "Other", question.other_description or "in your own words", wants_text=True
    )
    return Menu(
        question.question,
        (*options, other),
        detail=question.body,
        multi=question.multi_select,
        tabs=tabs,
        tab=tab,
    )


def change_tab(tabs: TabbedMenus, step: int) -> TabbedMenus:
    """Show the menu that is `step` tabs to the right, around the ends."""
    return replace(tabs, current_index=(tabs.current_index + step) % len(tabs.menus))


def apply_menu_outcome(tabs: TabbedMenus, outcome: MenuOutcome) -> TabbedMenus | tuple[MenuSelection, ...] | None:
    """Apply the outcome of the shown menu; return the changed tabs, all answers, or None when it was dismissed."""
    if outcome is None:
        return None
    if isinstance(outcome, Menu):
        return replace(tabs, menus=_replace_item(tabs.menus, tabs.current_index, outcome))
    answers = _replace_item(tabs.answers, tabs.current_index, outcome)
    missing = [n for n, answer in enumerate(answers) if answer is None]
    if not missing:
        return tuple(answer for answer in answers if answer is not None)
    following = next((n for n in missing if n > tabs.current_index), missing[0])
    return replace(tabs, answers=answers, current_index=following)


def _replace_item(items: tuple[_Item, ...], position: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:position], item, *items[position + 1 :])


def build_question_answer(request: QuestionRequest, picked: Sequence[MenuSelection] | None) -> QuestionAnswer:
    """Return the answers by question text: the chosen labels and the user's own text, joined by commas."""
    answers: dict[str, str] = {}
    for question, one in zip(request.questions, picked or (), strict=False):
        labels = [question.options[at].label for at in one.positions if at < len(question.options)]
        answers[question.question] = ", ".join([*labels, *([one.text] if one.text else [])])
    return QuestionAnswer(answers)
