"""Session ids and titles."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.errors import InvalidSessionId
from kimi.domain.history.session import TITLE_LENGTH, check_session_id, shorten_title
from tests.support.shown.attacks import TERMINAL_SEQUENCES


@pytest.mark.parametrize("text", ["0b6e…", "my session", "a" * 128, "...", ".hidden", "-x", "user:4711", "C:x"])
def test_usable_ids_are_accepted(text: str) -> None:
    assert check_session_id(text) == text


@pytest.mark.spec("R-56")
@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "..", "a/b", "../../../dir", "a\\b", "a\0b", "a\nb", "a" * 129, "長" * 100],
)
def test_unsafe_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidSessionId):
        check_session_id(text)


@given(st.text())
def test_an_accepted_id_names_something_directly_in_its_directory(text: str) -> None:
    try:
        path = os.path.join("/store", check_session_id(text))
    except InvalidSessionId:
        return
    assert os.path.dirname(os.path.normpath(path)) == "/store"


@given(st.text())
def test_a_title_is_one_line_of_at_most_50_characters(text: str) -> None:
    title = shorten_title(text)
    assert len(title) <= TITLE_LENGTH
    assert title == " ".join(title.split())
    assert bool(title) == bool(text.split())


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("fix\n  the   build", "fix the build"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 49 + "…"),
        ("word " * 20, "word " * 9 + "word…"),
        ("a" * 40 + " " + "b" * 20, "a" * 40 + "…"),
        ("a" * 49 + " b", "a" * 49 + "…"),
    ],
)
def test_titles_are_cut_at_word_boundaries(text: str, title: str) -> None:
    assert shorten_title(text) == title


@pytest.mark.spec("R-237")
@pytest.mark.parametrize("hidden", TERMINAL_SEQUENCES, ids=ascii)
def test_a_title_holds_no_control_characters(hidden: str) -> None:
    title = shorten_title(f"Mend{hidden} the build")
    assert title.isprintable()
    assert title.startswith("Mend")
    assert title.endswith("the build")
    assert shorten_title(hidden * 100_000).isprintable()


def test_a_title_keeps_letters_that_are_joined() -> None:
    assert shorten_title("می‌خواهم 👩‍💻 naïve") == "می‌خواهم 👩‍💻 naïve"
