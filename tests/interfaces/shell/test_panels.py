"""Panels as pure state."""

from kimi.domain.events.request import (
    ApprovalAnswer,
    ApprovalRequest,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionRequest,
)
from kimi.domain.tools.tool import ShellBlock
from kimi.interfaces.shell.panels import (
    Menu,
    Option,
    Picked,
    Tabs,
    answer_tab,
    approval_answer,
    approval_menu,
    change_tab,
    press,
    press_number,
    question_answer,
    question_tabs,
    type_text,
)

REQUEST = ApprovalRequest(
    "r", "c", "Shell", "run command", "Run `ls`", display=(ShellBlock(language="bash", command="ls"),)
)


def test_an_approval_is_decided_by_number_or_by_arrows() -> None:
    menu = approval_menu(REQUEST)
    assert approval_answer(_picked(press_number(menu, 1))) == ApprovalAnswer("approve")
    assert approval_answer(_picked(press_number(menu, 2))) == ApprovalAnswer("approve_for_session")
    assert approval_answer(_picked(press_number(menu, 3))) == ApprovalAnswer("reject")
    typing = press_number(menu, 4)
    assert isinstance(typing, Menu)
    assert typing.typing
    assert approval_answer(_picked(type_text(typing, " use cat "))) == ApprovalAnswer("reject", "use cat")
    back = press(typing, "escape")
    assert isinstance(back, Menu)
    assert not back.typing
    assert press(menu, "escape") is None
    assert approval_answer(None) == ApprovalAnswer("reject")
    down = press(menu, "up")
    assert isinstance(down, Menu)
    assert down.at == 3


def test_an_empty_reason_is_no_rejection() -> None:
    typing = press_number(approval_menu(REQUEST), 4)
    assert isinstance(typing, Menu)
    back = type_text(typing, "   ")
    assert isinstance(back, Menu)
    assert not back.typing


def test_numbers_without_an_option_do_nothing() -> None:
    menu = approval_menu(REQUEST)
    assert press_number(menu, 5) is menu
    assert press(menu, "space") is menu
    assert press(Menu("empty", ()), "enter") is None


def test_questions_are_answered_in_any_order() -> None:
    options = (QuestionOption("a"), QuestionOption("b"))
    request = QuestionRequest("q", "c", (Question("One?", options=options), Question("Two?", "T", options, True)))
    tabs = question_tabs(request)
    assert tabs.menu.tabs == ("Question 1", "T")
    tabs = change_tab(tabs, 1)
    tabs = _tabs(answer_tab(tabs, press_number(tabs.menu, 2)))
    tabs = _tabs(answer_tab(tabs, press_number(tabs.menu, 1)))
    tabs = _tabs(answer_tab(tabs, press(tabs.menu, "enter")))
    assert tabs.at == 0  # the one that has no answer yet
    typing = _tabs(answer_tab(tabs, press_number(tabs.menu, 3)))
    done = answer_tab(typing, type_text(typing.menu, "none of it"))
    assert isinstance(done, tuple)
    assert done == (Picked((2,), "none of it"), Picked((0, 1)))
    answer = question_answer(request, done)
    assert answer == QuestionAnswer({"One?": "none of it", "Two?": "a, b"})
    assert answer_tab(tabs, None) is None
    assert question_answer(request, None) == QuestionAnswer({})


def test_a_list_can_offer_another_one() -> None:
    menu = Menu("Sessions", (Option("a"),), toggle="all directories")
    assert press(menu, "toggle") == Picked((), toggled=True)
    assert press(approval_menu(REQUEST), "toggle") == approval_menu(REQUEST)


def _picked(step: object) -> Picked:
    assert isinstance(step, Picked)
    return step


def _tabs(outcome: object) -> Tabs:
    assert isinstance(outcome, Tabs)
    return outcome
