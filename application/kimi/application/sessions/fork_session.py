"""Use-cases fork and undo: create a new session that continues from an earlier turn (runtime spec 4.6).

The old session is unchanged. Turns are those of the event log, slash commands included, counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import cast, get_args

import anyio
import anyio.to_thread
from pydantic_core import from_json

from kimi.application.codec.payloads import decode_user_input
from kimi.application.ports import NewId, SessionFiles, SessionStore
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput, join_text
from kimi.domain.errors import StateError
from kimi.domain.history.past_turns import PastTurn, TurnMark, TurnMarkKind, collect_past_turns, select_contexts_after
from kimi.domain.history.session import SessionState, shorten_title
from kimi.domain.turn import UsageTotal

_MARK_KINDS: tuple[TurnMarkKind, ...] = get_args(TurnMarkKind)
_MARK_PREFIXES = frozenset(f'{{"type":"{kind}"'.encode() for kind in _MARK_KINDS)


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The new session, and the input of the removed turn, which the user may want to change and send again."""

    session_id: str
    user_input: UserInput


def load_turns(files: SessionFiles) -> list[PastTurn]:
    """Return the turns of a session, oldest first. Reads the whole event log. Raises StoreFailed."""
    return collect_past_turns(_read_marks(files.events()))


async def fork(store: SessionStore, source: SessionFiles, new_id: NewId, turn: int | None = None) -> str:
    """Create a session with all turns up to and including `turn`, or with all turns; return its id.

    Its title is `Fork: <title>`, it is not open, and it has none of the approvals of the old session. No turn of
    `source` may be running.

    Raises StateError when there is no such turn, StoreFailed; no new session is left then.
    """
    turns = await anyio.to_thread.run_sync(load_turns, source)
    if turn is not None:
        _check_turn(turns, turn)
    return await _copy_session(store, source, new_id, turns, turn, "Fork")


async def undo(store: SessionStore, source: SessionFiles, new_id: NewId, turn: int | None = None) -> UndoResult:
    """Create a session `Undo: <title>` with the turns before `turn`, or before the last one; otherwise as `fork`.

    Changes that tools made to files are not undone.
    """
    turns = await anyio.to_thread.run_sync(load_turns, source)
    wanted = len(turns) - 1 if turn is None else turn
    _check_turn(turns, wanted)
    return UndoResult(await _copy_session(store, source, new_id, turns, wanted - 1, "Undo"), turns[wanted].user_input)


def _check_turn(turns: list[PastTurn], turn: int) -> None:
    if not turns:
        raise StateError("The session has no turn yet.")
    if not 0 <= turn < len(turns):
        raise StateError(f"There is no turn {turn}: the session has turns 0 to {len(turns) - 1}.")


async def _copy_session(
    store: SessionStore, source: SessionFiles, new_id: NewId, turns: list[PastTurn], turn: int | None, title_prefix: str
) -> str:
    session_id = new_id()
    target = await store.create(session_id)
    done = False
    try:
        await anyio.to_thread.run_sync(_fill_session, source, target, turns, turn, title_prefix)
        done = True
    finally:
        target.close()
        if not done:
            with anyio.CancelScope(shield=True):  # a cancelled fork must not leave a partial session
                await store.delete(session_id)
    return session_id


def _fill_session(
    source: SessionFiles, target: SessionFiles, turns: list[PastTurn], turn: int | None, title_prefix: str
) -> None:
    """Write the event log, the context and the state of the new session. Raises StoreFailed."""
    whole = turn is None or turn == len(turns) - 1
    for envelope, time in islice(source.timed_events(), None if whole else _count_events(turns, turn or 0)):
        target.append_event(envelope, time)
    contexts = chain([source.load_context()], source.older_contexts())
    oldest, *newer = reversed(list(contexts) if turn is None else select_contexts_after(turn, contexts, turns))
    target.append_context(oldest)
    for records in newer:  # older contexts are copied too, so that the new session can be forked at an earlier turn
        target.rotate_context(records)
    target.load_context()  # stores answers for the calls that the last turn left open
    old = source.state
    first = join_text(turns[0].user_input) if turns else ""
    title = shorten_title(old.custom_title or first) or "Untitled"
    kept = SessionState(additional_dirs=old.additional_dirs, todos=old.todos if whole else (), usage=UsageTotal())
    target.save_state(replace(kept, custom_title=f"{title_prefix}: {title}"))


def _count_events(turns: list[PastTurn], turn: int) -> int:
    """Return the number of events of the log that belong to the turns up to and including this one."""
    if turn < 0:
        return 0
    end = turns[turn].end
    return turns[turn + 1].begin if end is None else end


def _read_marks(envelopes: Iterable[bytes]) -> Iterator[TurnMark]:
    for position, envelope in enumerate(envelopes):
        if _may_be_mark(envelope):
            source = cast("JsonObject", from_json(envelope))
            if source["type"] in _MARK_KINDS:
                yield _parse_mark(position, source["type"], source["payload"])


def _may_be_mark(envelope: bytes) -> bool:
    """Return whether the envelope may be a mark of a turn, judged without parsing it.

    Envelopes in another form than this program writes always may, and are parsed.
    """
    end = envelope.find(b'"', 9, 64)
    return not envelope.startswith(b'{"type":"') or envelope[: end + 1] in _MARK_PREFIXES


def _parse_mark(position: int, kind: TurnMarkKind, payload: JsonObject) -> TurnMark:
    try:
        user_input = decode_user_input(payload["user_input"]) if "user_input" in payload else ""
    except ValueError:
        user_input = ""
    text = payload.get("id" if kind == "ToolCall" else "text")
    return TurnMark(position, kind, user_input, text if isinstance(text, str) else "")
