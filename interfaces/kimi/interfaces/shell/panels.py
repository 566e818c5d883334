"""Questions to the person as pure state: `(panel, key) -> panel or answer`. Drawing and key bindings are elsewhere."""

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
    """One line to choose. `wants_text`: choosing it asks for words."""

    label: str
    description: str = ""
    wants_text: bool = False


@dataclass(frozen=True, slots=True)
class MenuSelection:
    """What was chosen: positions in the order of the options, and words where they were asked for."""

    positions: tuple[int, ...]
    text: str = ""
    toggled: bool = False


@dataclass(frozen=True, slots=True)
class Menu:
    """A list with one line marked.

    `typing`: the marked option waits for words. `chosen` counts with `multi` only. `toggle_label` names Ctrl-A.
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
"""The menu as it is now, what was picked, or None: dismissed."""


def press_key(menu: Menu, key: MenuKey) -> MenuOutcome:
    """What a key does to a menu that is not waiting for words, except Escape, which ends that."""
    if key == "escape":
        return replace(menu, typing=False) if menu.typing else None
    if key == "enter":
        return _accept_option(menu)
    if key in ("up", "down"):
        step = 1 if key == "down" else -1
        return replace(menu, cursor=(menu.cursor + step) % max(1, len(menu.options)), typing=False)
    if key == "space" and menu.multi:
        return replace(menu, chosen=menu.chosen ^ {menu.cursor})
    if key == "toggle" and menu.toggle_label:
        return MenuSelection((), toggled=True)
    return menu


def press_number(menu: Menu, number: int) -> MenuOutcome:
    """A digit chooses the option with this number, counted from 1."""
    if not 1 <= number <= len(menu.options):
        return menu
    menu = replace(menu, cursor=number - 1)
    if menu.multi and not menu.options[menu.cursor].wants_text:
        return replace(menu, chosen=menu.chosen ^ {menu.cursor})
    return _accept_option(menu)


def enter_text(menu: Menu, text: str) -> MenuOutcome:
    """The words for the marked option were entered; without any the list is back."""
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
    """The panel of an approval."""
    by = f" (subagent {request.subagent_type})" if request.subagent_type else ""
    if request.source_description:
        by += f" - {request.source_description}"
    is_shown = any(isinstance(block, DiffBlock | ShellBlock | BriefBlock) for block in request.display)
    preview = ApprovalPreview(request.display, "" if is_shown else request.description)
    title = f"{request.sender}{by} wants to: {request.action}"
    return Menu(title, APPROVAL_OPTIONS, detail=request.description, preview=preview)


def build_approval_answer(picked: MenuSelection | None) -> ApprovalAnswer:
    """The decision; a panel that was dismissed rejects."""
    position = picked.positions[0] if picked and picked.positions else 2
    if position == 0:
        return ApprovalAnswer("approve")
    if position == 1:
        return ApprovalAnswer("approve_for_session")
    return ApprovalAnswer("reject", picked.text if picked else "")


# --- questions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TabbedMenus:
    """Several menus of which one is shown; all must be answered."""

    menus: tuple[Menu, ...]
    answers: tuple[MenuSelection | None, ...]
    current_index: int = 0

    @property
    def current_menu(self) -> Menu:
        """The one that is shown."""
        return self.menus[self.current_index]


def build_question_menus(request: QuestionRequest) -> TabbedMenus:
    """The panel of a question request."""
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
    """Another question, to the right or to the left."""
    return replace(tabs, current_index=(tabs.current_index + step) % len(tabs.menus))


def apply_menu_outcome(tabs: TabbedMenus, outcome: MenuOutcome) -> TabbedMenus | tuple[MenuSelection, ...] | None:
    """What came of a key in the shown menu: the tabs as they are now, all answers, or None: dismissed."""
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
    """Question text to the chosen label, labels joined by commas, or the person's own words."""
    answers: dict[str, str] = {}
    for question, one in zip(request.questions, picked or (), strict=False):
        labels = [question.options[at].label for at in one.positions if at < len(question.options)]
        answers[question.question] = ", ".join([*labels, *([one.text] if one.text else [])])
    return QuestionAnswer(answers)
