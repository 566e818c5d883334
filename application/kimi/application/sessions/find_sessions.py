"""Use-case find-sessions: list, search and locate the stored sessions of all work directories (runtime spec 4.5)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kimi.application.ports import SessionCatalog
from kimi.domain.errors import InvalidSessionId, UnknownSession, UsageError
from kimi.domain.history.session import SessionSummary, check_session_id
from kimi.domain.tools.visible_text import reveal_hidden

MAX_NEAR_MATCHES = 3
"""How many sessions are named in the place of an unknown one."""

_LIKENESS = 0.6


def find_sessions(
    catalog: SessionCatalog, words: Sequence[str] = (), *, work_dir: str | None = None, below: str | None = None
) -> list[SessionSummary]:
    """Return the sessions that hold all `words`, the one that was written last first. Blocks.

    A word may stand in the id, in the title and in any prompt, in upper or lower case. With `work_dir` only sessions of
    that directory are searched, with `below` those of that directory and all below it.
    """
    found = catalog.list_sessions(work_dir)
    if below is not None:
        root = os.path.join(below, "")
        found = [one for one in found if one.work_dir == below or one.work_dir.startswith(root)]
    wanted = [word.casefold() for word in words if word.strip()]
    found = [one for one in found if _holds(catalog, one, wanted)]
    return sorted(found, key=lambda one: (-one.updated_at, one.id))


def locate_session(catalog: SessionCatalog, session_id: str, work_dir: str) -> str:
    """Return the work directory that a session belongs to: `work_dir` if it has one of this id, else any other. Blocks.

    Raises:
        InvalidSessionId: no session can have this id.
        UnknownSession: there is none; the message names those that may be meant. Or several directories have one.
    """
    if catalog.has_session(work_dir, check_session_id(session_id)):
        return work_dir
    owners = catalog.find_work_dirs(session_id)
    known = [path for path in owners if path is not None]
    if not owners:
        raise UnknownSession(f"There is no session '{session_id}'.{_name_near_matches(catalog, session_id)}")
    if not known:
        raise UnknownSession(f"Session '{session_id}' belongs to a directory that is no longer known.")
    if len(known) > 1:
        raise UnknownSession(
            f"There are sessions '{session_id}' of several directories: {', '.join(known)}. Name one with --work-dir."
        )
    return known[0]


def locate_resumed_session(catalog: SessionCatalog, session_id: str, work_dir: str, *, here: bool) -> str | None:
    """Return the other work directory that a session to resume belongs to; None if it is one of `work_dir`. Blocks.

    Raises UsageError if there is no such session, or if it is of another directory and not to go on `here`.
    """
    try:
        owner = locate_session(catalog, session_id, work_dir)
    except (InvalidSessionId, UnknownSession) as error:
        raise UsageError(reveal_hidden(str(error)), "--resume") from None
    if owner == work_dir:
        return None
    if here:
        return owner
    from shlex import quote

    raise UsageError(
        reveal_hidden(
            f"Session '{session_id}' belongs to {owner}.\n"
            f"Resume it there: kimi -w {quote(owner)} -r {quote(session_id)}\n"
            f"Go on with it here: kimi -r {quote(session_id)} --here"
        ),
        "--resume",
    )


def find_near_matches(sessions: Sequence[SessionSummary], text: str) -> list[SessionSummary]:
    """Return the few sessions that `text` may mean: it is a part of the id or of the title, or similar to an id."""
    from difflib import SequenceMatcher

    wanted = text.casefold().strip()

    def rank(one: SessionSummary) -> float:
        if one.id.casefold().startswith(wanted):
            return 3.0
        if wanted in one.id.casefold() or wanted in one.title.casefold():
            return 2.0
        return SequenceMatcher(None, wanted, one.id.casefold()).ratio()

    ranked = [(rank(one), one) for one in sessions]
    near = [found for found in ranked if found[0] >= _LIKENESS]
    near.sort(key=lambda found: (-found[0], -found[1].updated_at))
    return [one for _, one in near[:MAX_NEAR_MATCHES]]


def _name_near_matches(catalog: SessionCatalog, text: str) -> str:
    near = find_near_matches(catalog.list_sessions(), text)
    if not near:
        return " `kimi sessions list --all` shows all that there are."
    lines = [f"{one.id} ({one.title}, {one.work_dir})" for one in near]
    return "\nDid you mean:\n" + "\n".join(lines)


def _holds(catalog: SessionCatalog, session: SessionSummary, words: Sequence[str]) -> bool:
    head = f"{session.id}\n{session.title}".casefold()
    missing = [word for word in words if word not in head]
    for prompt in catalog.read_prompts(session) if missing else ():
        text = prompt.casefold()
        missing = [word for word in missing if word not in text]
        if not missing:
            break
    return not missing
