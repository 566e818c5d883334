"""Use-case open-session: open or create a session, and build its approval policy (runtime spec 4.5)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from kimi.application.conversation.session import ConversationSession
from kimi.application.ports import NewId, SessionFiles, SessionStore
from kimi.application.settings.settings import Settings
from kimi.domain.errors import StoreFailed, UsageError
from kimi.domain.history.session import SessionState, check_session_id
from kimi.domain.permissions.approval import Policy
from kimi.domain.permissions.path_rules import is_within

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionSelector:
    """Selects the session to open: one by id (created when unknown), the last one, or a new one."""

    session_id: str | None = None
    last: bool = False


async def open_session(store: SessionStore, selector: SessionSelector, new_id: NewId) -> SessionFiles:
    """Open or create the chosen session.

    Raises InvalidSessionId, SessionBusy, StoreFailed; UsageError when there is no last session.
    """
    if selector.last:
        session_id = store.last_session_id()
        if session_id is None:
            raise UsageError("No previous session found for the working directory", "--continue")
        return await store.open(session_id) or await store.create(session_id)
    if selector.session_id is None:
        return await store.create(new_id())
    session_id = check_session_id(selector.session_id)
    return await store.open(session_id) or await store.create(session_id)


def save_additional_dirs(session: ConversationSession, settings: Settings) -> None:
    """Make the directories that were given at the start part of the session, but for those inside the work dir.

    A failure is logged, because this run uses the directories in any case.
    """
    state = session.files.state
    new = [
        path for path in settings.additional_dirs if not is_within(path, [settings.work_dir, *state.additional_dirs])
    ]
    if not new:
        return
    try:
        session.update_state(
            lambda state: replace(state, additional_dirs=(*state.additional_dirs, *dict.fromkeys(new)))
        )
    except StoreFailed:
        logger.exception("the additional directories could not be stored")


def build_policy(settings: Settings, state: SessionState, *, resumed: bool) -> Policy:
    """Return the approval policy of an opened session.

    Approvals for the session are restored. yolo, afk and edits mode are restored only if the configuration says so
    (tools spec 5.4).
    """
    restore = settings.session.restore_yolo
    return Policy(
        yolo=settings.yolo or (restore and state.yolo),
        afk=settings.afk or (restore and state.afk),
        edits=settings.edits or (restore and state.edits),
        unattended=settings.unattended,
        plan=settings.plan_mode or (state.plan_mode if resumed else settings.default_plan_mode),
        remembered=state.auto_approve_actions,
        rules=settings.approval.rules,
        scope=settings.approval.session_scope,
    )
