"""Which sessions a search and an id mean (runtime spec 4.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from kimi.application.sessions.find_sessions import (
    find_near_matches,
    find_sessions,
    locate_resumed_session,
    locate_session,
)
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import InvalidSessionId, UnknownSession, UsageError
from kimi.domain.history.session import SessionSummary, StoredSessionInfo, check_session_id


@dataclass(frozen=True)
class _Catalog:
    """The double of `SessionCatalog`: summaries, with the prompts of each."""

    prompts: Mapping[SessionSummary, Sequence[str]]
    unknown: Sequence[str] = ()
    """Ids of sessions whose work directory nobody knows."""

    def list_sessions(self, work_dir: str | None = None) -> Sequence[SessionSummary]:
        return [one for one in self.prompts if work_dir in (None, one.work_dir)]

    def find_work_dirs(self, session_id: str) -> Sequence[str | None]:
        known = [one.work_dir for one in self.prompts if one.id == check_session_id(session_id)]
        return [*known, *(None for one in self.unknown if one == session_id)]

    def has_session(self, work_dir: str, session_id: str) -> bool:
        return work_dir in self.find_work_dirs(session_id)

    def read_prompts(self, session: SessionSummary) -> Iterator[str]:
        return iter(self.prompts[session])

    def read_events(self, session: SessionSummary) -> Iterator[tuple[float, JsonObject]]:
        return iter(())

    def inspect(self, session: SessionSummary) -> StoredSessionInfo:
        return StoredSessionInfo(session.work_dir, 0, is_open=False)


PARSER = SessionSummary("0b5ce6f2", "/w/app", "Fix the parser", 20.0)
BUILD = SessionSummary("9a5ce6f2", "/w/app/tools", "Why is it slow?", 30.0)
TWIN = SessionSummary("nightly", "/w/app", "Nightly", 10.0)
OTHER_TWIN = SessionSummary("nightly", "/w/application", "Nightly", 10.0)
CATALOG = _Catalog({PARSER: ["Fix the parser", "and the LEXER"], BUILD: ["the build"], TWIN: [], OTHER_TWIN: []}, ["x"])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), [BUILD, PARSER, TWIN, OTHER_TWIN]),
        (("PARSER",), [PARSER]),
        (("lexer", "parser"), [PARSER]),
        (("lexer", "slow"), []),
        (("build",), [BUILD]),
        (("5ce6",), [BUILD, PARSER]),
        (("  ", "slow"), [BUILD]),
    ],
)
def test_all_words_must_be_in_title_prompts_or_id(words: Sequence[str], found: list[SessionSummary]) -> None:
    assert find_sessions(CATALOG, words) == found


def test_a_directory_holds_its_own_sessions_and_those_below_it() -> None:
    assert find_sessions(CATALOG, work_dir="/w/app") == [PARSER, TWIN]
    assert find_sessions(CATALOG, below="/w/app") == [BUILD, PARSER, TWIN]
    assert find_sessions(CATALOG, below="/w/app/tools") == [BUILD]
    assert len(find_sessions(CATALOG, below="/w")) == 4


def test_an_id_means_the_session_of_this_directory_before_others() -> None:
    assert locate_session(CATALOG, "nightly", "/w/application") == "/w/application"
    assert locate_session(CATALOG, PARSER.id, "/elsewhere") == "/w/app"
    with pytest.raises(UnknownSession, match="several directories: /w/app, /w/application"):
        locate_session(CATALOG, "nightly", "/elsewhere")
    with pytest.raises(UnknownSession, match="a directory that is no longer known"):
        locate_session(CATALOG, "x", "/elsewhere")
    with pytest.raises(InvalidSessionId):
        locate_session(CATALOG, "../x", "/elsewhere")


def test_a_session_of_another_directory_is_resumed_here_only_when_asked() -> None:
    assert locate_resumed_session(CATALOG, PARSER.id, "/w/app", here=False) is None
    assert locate_resumed_session(CATALOG, PARSER.id, "/w/app", here=True) is None
    assert locate_resumed_session(CATALOG, PARSER.id, "/elsewhere", here=True) == "/w/app"
    for wrong in (PARSER.id, "nightly", "nobody", "../x"):
        with pytest.raises(UsageError):
            locate_resumed_session(CATALOG, wrong, "/elsewhere", here=False)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("0b5c", [PARSER]),
        ("5ce6", [BUILD, PARSER]),
        ("0b5ce6f3", [PARSER, BUILD]),
        ("parser", [PARSER]),
        ("nothing of the kind", []),
    ],
)
def test_near_matches_are_parts_and_misspellings(text: str, near: list[SessionSummary]) -> None:
    assert find_near_matches([PARSER, BUILD, TWIN], text) == near
