"""What is kept beside the messages: titles, approvals, and what other programs write there (R-60, R-61)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place, WireProcess, approval
from tests.support.stored_sessions import Json, write_session

ECHO = 'tool_call: {"id":"c1","name":"Shell","arguments":"{\\"command\\":\\"echo hi\\"}"}'
LONG = "  Please tell me,\n\tin short words, what this project is about and why  "
SHORT = "Please tell me, in short words, what this project…"


def state_file(place: Place) -> Path:
    """The state of the only session."""
    return place.session_dirs()[-1] / "state.json"


def state(place: Place) -> Json:
    """Its content."""
    return json.loads(state_file(place).read_text(encoding="utf-8"))


def change(place: Place, **keys: object) -> None:
    """Change it as another program does."""
    state_file(place).write_text(json.dumps(state(place) | keys), encoding="utf-8")


def approve_for_session(kimi: WireProcess) -> None:
    """A turn with a command that is approved for the session, which stores the state."""
    answer = kimi.prompt("go", lambda params: approval(params, "approve_for_session"))
    assert answer["result"] == {"status": "finished"}


@pytest.mark.spec("R-60")
def test_the_first_input_that_is_no_command_becomes_the_title(place: Place) -> None:
    place.script("text: a", "text: b")
    with place.wire() as kimi:
        kimi.prompt("/yolo")
        kimi.prompt("/nope what is this")
        assert state(place)["custom_title"] is None
        kimi.prompt(LONG)
        assert (state(place)["custom_title"], len(SHORT)) == (SHORT, 50)
        kimi.prompt("something else")
        assert kimi.finish() == 0
    assert state(place)["custom_title"] == SHORT


@pytest.mark.spec("R-60")
def test_custom_title_is_kept(place: Place) -> None:
    place.script("text: a", ECHO, "text: b")
    with place.wire() as kimi:
        kimi.prompt("first")
        change(place, custom_title="Mine", title_generated=True)
        approve_for_session(kimi)
        assert kimi.finish() == 0
    kept = state(place)
    assert (kept["custom_title"], kept["title_generated"]) == ("Mine", True)
    assert kept["approval"]["auto_approve_actions"] == ["run command"]


@pytest.mark.spec("R-60")
@pytest.mark.parametrize("name", ["title", "custom_title"])
def test_a_legacy_title_moves_into_the_state(place: Place, name: str) -> None:
    place.script("text: a")
    old = {name: "From long ago", "archived": True, "archived_at": 5.0}
    directory = write_session(place, "old", context=[{"role": "user", "content": "x"}], metadata=old)
    with place.wire("--session", "old") as kimi:
        assert kimi.prompt("and now?")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert not (directory / "metadata.json").exists()
    kept = state(place)
    assert (kept["custom_title"], kept["archived"], kept["archived_at"]) == ("From long ago", True, 5.0)


@pytest.mark.spec("R-61")
def test_state_members_of_other_programs_are_kept(place: Place) -> None:
    place.script("text: a", ECHO, "text: b", "text: c")
    with place.wire() as kimi:
        kimi.prompt("first")
        foreign = {"archived": True, "archived_at": 12.5, "wire_mtime": 7.25, "of_a_later_version": {"deep": [1, None]}}
        approvals = state(place)["approval"] | {"new_mode": "x"}
        change(place, **foreign, approval=approvals, custom_title="Mine")
        approve_for_session(kimi)
        assert kimi.finish() == 0
    kept = state(place)
    assert {key: kept[key] for key in foreign} == foreign
    assert kept["approval"] == {
        "yolo": False,
        "afk": False,
        "auto_approve_actions": ["run command"],
        "new_mode": "x",
    }
    with place.wire("--continue") as kimi:
        kimi.prompt("/yolo")
        kimi.prompt("more")
        assert kimi.finish() == 0
    assert {key: state(place)[key] for key in foreign} == foreign
    assert state(place)["approval"]["yolo"] is True


@pytest.mark.parametrize(
    "content", ["", "not json", "[1]", '{"approval": 5, "custom_title": [], "todos": "x"}', "\x00\xff"]
)
def test_unreadable_state_does_not_prevent_resume(place: Place, content: str) -> None:
    place.script("text: a", "text: b")
    with place.wire() as kimi:
        kimi.prompt("first")
    state_file(place).write_text(content, encoding="latin-1")
    place.script("text: a", "text: b")
    with place.wire("--continue") as kimi:
        assert kimi.prompt("second")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert state(place)["approval"] == {"yolo": False, "afk": False, "auto_approve_actions": []}
    assert state(place)["custom_title"] == "second"
