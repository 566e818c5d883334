"""Panels as pure state."""

from dataclasses import replace

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
    MenuOption,
    MenuSelection,
    TabbedMenus,
    apply_menu_outcome,
    build_approval_answer,
    build_approval_menu,
    build_question_answer,
    build_question_menus,
    change_tab,
    enter_text,
    press_key,
    press_number,
)

REQUEST = ApprovalRequest(
    "r", "c", "Shell", "run command", "Run `ls`", display=(ShellBlock(language="bash", command="ls"),)
)


def test_an_approval_is_decided_by_number_or_by_arrows() -> None:
    menu = build_approval_menu(REQUEST)
    assert build_approval_answer(_picked(press_number(menu, 1))) == ApprovalAnswer("approve")
    assert build_approval_answer(_picked(press_number(menu, 2))) == ApprovalAnswer("approve_for_session")
    assert build_approval_answer(_picked(press_number(menu, 3))) == ApprovalAnswer("reject")
    typing = press_number(menu, 4)
    assert isinstance(typing, Menu)
    assert typing.typing
    assert build_approval_answer(_picked(enter_text(typing, " use cat "))) == ApprovalAnswer("reject", "use cat")
    back = press_key(typing, "escape")
    assert isinstance(back, Menu)
    assert not back.typing
    assert press_key(menu, "escape") is None
    assert build_approval_answer(None) == ApprovalAnswer("reject")
    down = press_key(menu, "up")
    assert isinstance(down, Menu)
    assert down.cursor == 3


def test_empty_feedback_is_not_a_rejection() -> None:
    typing = press_number(build_approval_menu(REQUEST), 4)
    assert isinstance(typing, Menu)
    back = enter_text(typing, "   ")
    assert isinstance(back, Menu)
    assert not back.typing


def test_numbers_without_an_option_do_nothing() -> None:
    menu = build_approval_menu(REQUEST)
    assert press_number(menu, 5) is menu
    assert press_key(menu, "space") is menu
    assert press_key(Menu("empty", ()), "enter") is None


def test_questions_are_answered_in_any_order() -> None:
    options = (QuestionOption("a"), QuestionOption("b"))
    request = QuestionRequest("q", "c", (Question("One?", options=options), Question("Two?", "T", options, True)))
    tabs = build_question_menus(request)
    assert tabs.current_menu.tabs == ("Question 1", "T")
    tabs = change_tab(tabs, 1)
    tabs = _tabs(apply_menu_outcome(tabs, press_number(tabs.current_menu, 2)))
    tabs = _tabs(apply_menu_outcome(tabs, press_number(tabs.current_menu, 1)))
    tabs = _tabs(apply_menu_outcome(tabs, press_key(tabs.current_menu, "enter")))
    assert tabs.current_index == 0  # the one that has no answer yet
    typing = _tabs(apply_menu_outcome(tabs, press_number(tabs.current_menu, 3)))
    done = apply_menu_outcome(typing, enter_text(typing.current_menu, "none of it"))
    assert isinstance(done, tuple)
    assert done == (MenuSelection((2,), "none of it"), MenuSelection((0, 1)))
    answer = build_question_answer(request, done)
    assert answer == QuestionAnswer({"One?": "none of it", "Two?": "a, b"})
    assert apply_menu_outcome(tabs, None) is None
    assert build_question_answer(request, None) == QuestionAnswer({})


def test_list_can_offer_a_toggle() -> None:
    menu = Menu("Sessions", (MenuOption("a"),), toggle_label="all directories")
    assert press_key(menu, "toggle") == MenuSelection((), toggled=True)
    assert press_key(build_approval_menu(REQUEST), "toggle") == build_approval_menu(REQUEST)


def _picked(step: object) -> MenuSelection:
    assert isinstance(step, MenuSelection)
    return step


def _tabs(outcome: object) -> TabbedMenus:
    assert isinstance(outcome, TabbedMenus)
    return outcome


def test_a_long_description_of_a_subagent_does_not_push_the_action_away() -> None:
    request = replace(REQUEST, subagent_type="coder", source_description="x" * 500)
    assert build_approval_menu(request).title.startswith("Shell wants to: run command (subagent coder) - xxx")


def test_space_chooses_the_only_answer_but_approves_nothing() -> None:
    menu = Menu("Which?", (MenuOption("a"), MenuOption("b")))
    assert press_key(menu, "space") == MenuSelection((0,))
    approval = build_approval_menu(REQUEST)
    assert press_key(approval, "space") == approval
