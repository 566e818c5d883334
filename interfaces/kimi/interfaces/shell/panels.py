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
from kimi.interfaces.shell.render.blocks import Preview

_Item = TypeVar("_Item")
Key: TypeAlias = Literal["up", "down", "left", "right", "enter", "escape", "space", "toggle"]


@dataclass(frozen=True, slots=True)
class Option:
    """One line to choose. `wants_text`: choosing it asks for words."""

    label: str
    description: str = ""
    wants_text: bool = False


@dataclass(frozen=True, slots=True)
class Picked:
    """What was chosen: positions in the order of the options, and words where they were asked for."""

    positions: tuple[int, ...]
    text: str = ""
    toggled: bool = False


@dataclass(frozen=True, slots=True)
class Menu:
    """A list with one line marked.

    `typing`: the marked option waits for words. `chosen` counts with `multi` only. `toggle` names what Ctrl-A does.
    """

    title: str
    options: tuple[Option, ...]
    detail: str = ""
    preview: Preview | None = None
    multi: bool = False
    at: int = 0
    chosen: frozenset[int] = frozenset()
    typing: bool = False
    text: str = ""
    toggle: str = ""
    tabs: tuple[str, ...] = ()
    tab: int = 0


Step: TypeAlias = Menu | Picked | None
"""The menu as it is now, what was picked, or None: dismissed."""


def press(menu: Menu, key: Key) -> Step:
    """What a key does to a menu that is not waiting for words, except Escape, which ends that."""
    if key == "escape":
        return replace(menu, typing=False) if menu.typing else None
    if key == "enter":
        return _accept(menu)
    if key in ("up", "down"):
        step = 1 if key == "down" else -1
        return replace(menu, at=(menu.at + step) % max(1, len(menu.options)), typing=False)
    if key == "space" and menu.multi:
        return replace(menu, chosen=menu.chosen ^ {menu.at})
    if key == "toggle" and menu.toggle:
        return Picked((), toggled=True)
    return menu


def press_number(menu: Menu, number: int) -> Step:
    """A digit chooses the option with this number, counted from 1."""
    if not 1 <= number <= len(menu.options):
        return menu
    menu = replace(menu, at=number - 1)
    if menu.multi and not menu.options[menu.at].wants_text:
        return replace(menu, chosen=menu.chosen ^ {menu.at})
    return _accept(menu)


def type_text(menu: Menu, text: str) -> Step:
    """The words for the marked option were entered; without any the list is back."""
    if not text.strip():
        return replace(menu, typing=False)
    if menu.multi:
        return Picked(tuple(sorted(menu.chosen | {menu.at})), text.strip())
    return Picked((menu.at,), text.strip())


def _accept(menu: Menu) -> Step:
    if not menu.options:
        return None
    if menu.options[menu.at].wants_text:
        return replace(menu, typing=True)
    if menu.multi:
        return Picked(tuple(sorted(menu.chosen or {menu.at})))
    return Picked((menu.at,))


# --- approvals --------------------------------------------------------------------------------------------------

APPROVAL_OPTIONS = (
    Option("Approve once"),
    Option("Approve for this session"),
    Option("Reject"),
    Option("Reject, and say what to do instead", wants_text=True),
)


def approval_menu(request: ApprovalRequest) -> Menu:
    """The panel of an approval."""
    by = f" (subagent {request.subagent_type})" if request.subagent_type else ""
    if request.source_description:
        by += f" - {request.source_description}"
    told = any(isinstance(block, DiffBlock | ShellBlock | BriefBlock) for block in request.display)
    preview = Preview(request.display, "" if told else request.description)
    title = f"{request.sender}{by} wants to: {request.action}"
    return Menu(title, APPROVAL_OPTIONS, detail=request.description, preview=preview)


def approval_answer(picked: Picked | None) -> ApprovalAnswer:
    """The decision; a panel that was dismissed rejects."""
    position = picked.positions[0] if picked and picked.positions else 2
    if position == 0:
        return ApprovalAnswer("approve")
    if position == 1:
        return ApprovalAnswer("approve_for_session")
    return ApprovalAnswer("reject", picked.text if picked else "")


# --- questions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tabs:
    """Several menus of which one is shown; all must be answered."""

    menus: tuple[Menu, ...]
    answers: tuple[Picked | None, ...]
    at: int = 0

    @property
    def menu(self) -> Menu:
        """The one that is shown."""
        return self.menus[self.at]


def question_tabs(request: QuestionRequest) -> Tabs:
    """The panel of a question request."""
    titles = tuple(question.header or f"Question {n}" for n, question in enumerate(request.questions, start=1))
    shown = titles if len(titles) > 1 else ()
    menus = tuple(_question_menu(question, shown, n) for n, question in enumerate(request.questions))
    return Tabs(menus, (None,) * len(menus))


def _question_menu(question: Question, tabs: tuple[str, ...], tab: int) -> Menu:
    options = [Option(option.label, option.description) for option in question.options]
    other = Option(question.other_label or "Other", question.other_description or "in your own words", wants_text=True)
    return Menu(
        question.question,
        (*options, other),
        detail=question.body,
        multi=question.multi_select,
        tabs=tabs,
        tab=tab,
    )


def change_tab(tabs: Tabs, step: int) -> Tabs:
    """Another question, to the right or to the left."""
    return replace(tabs, at=(tabs.at + step) % len(tabs.menus))


def answer_tab(tabs: Tabs, step: Step) -> Tabs | tuple[Picked, ...] | None:
    """What came of a key in the shown menu: the tabs as they are now, all answers, or None: dismissed."""
    if step is None:
        return None
    if isinstance(step, Menu):
        return replace(tabs, menus=_with(tabs.menus, tabs.at, step))
    answers = _with(tabs.answers, tabs.at, step)
    missing = [n for n, answer in enumerate(answers) if answer is None]
    if not missing:
        return tuple(answer for answer in answers if answer is not None)
    following = next((n for n in missing if n > tabs.at), missing[0])
    return replace(tabs, answers=answers, at=following)


def _with(items: tuple[_Item, ...], position: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:position], item, *items[position + 1 :])


def question_answer(request: QuestionRequest, picked: Sequence[Picked] | None) -> QuestionAnswer:
    """Question text to the chosen label, labels joined by commas, or the person's own words."""
    answers: dict[str, str] = {}
    for question, one in zip(request.questions, picked or (), strict=False):
        labels = [question.options[at].label for at in one.positions if at < len(question.options)]
        answers[question.question] = ", ".join([*labels, *([one.text] if one.text else [])])
    return QuestionAnswer(answers)
