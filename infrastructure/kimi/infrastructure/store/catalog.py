"""The stored sessions of all work directories (acp spec 4.3, 4.9)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from kimi.domain.content.message import JsonObject
from kimi.domain.history.session import SessionSummary, StoredSessionInfo, check_session_id
from kimi.infrastructure.store.kimi_json import list_known_work_dirs
from kimi.infrastructure.store.layout import find_context_file, normalize_path, session_directory, sessions_directory


class JsonlCatalog:
    """The sessions of a share directory; see the port `SessionCatalog`.

    The directories of sessions are named by a hash, so only `kimi.json` knows the paths of the work directories.
    """

    def __init__(self, share_dir: str) -> None:
        self._share_dir = share_dir

    def list_sessions(self, work_dir: str | None = None) -> Sequence[SessionSummary]:
        """The non-empty sessions of one work dir, or of all that are known."""
        from kimi.infrastructure.store.session_listing import list_summaries  # start-up time

        chosen = list_known_work_dirs(self._share_dir) if work_dir is None else [normalize_path(work_dir)]
        return [one for path in chosen for one in list_summaries(sessions_directory(self._share_dir, path), path)]

    def find_work_dirs(self, session_id: str) -> Sequence[str | None]:
        """Return the work directories that have a session with this id."""
        name = check_session_id(session_id)
        known = {sessions_directory(self._share_dir, path): path for path in list_known_work_dirs(self._share_dir)}
        return [known.get(directory) for directory in self._list_directories() if _has_session(directory, name)]

    def has_session(self, work_dir: str, session_id: str) -> bool:
        """Return whether this work directory has a session with this id."""
        return _has_session(sessions_directory(self._share_dir, work_dir), check_session_id(session_id))

    def read_prompts(self, session: SessionSummary) -> Iterator[str]:
        """Return the texts that the user has sent in a session."""
        from kimi.infrastructure.store.session_inspection import read_prompts  # start-up time

        return read_prompts(sessions_directory(self._share_dir, session.work_dir), session.id)

    def read_events(self, session: SessionSummary) -> Iterator[tuple[float, JsonObject]]:
        """Return the events in the log of a session."""
        from kimi.infrastructure.store.session_inspection import read_events  # start-up time

        return read_events(sessions_directory(self._share_dir, session.work_dir), session.id)

    def inspect(self, session: SessionSummary) -> StoredSessionInfo:
        """Return what the files of a session tell about it."""
        from kimi.infrastructure.store.session_inspection import inspect_session  # start-up time

        return inspect_session(sessions_directory(self._share_dir, session.work_dir), session.id)

    def _list_directories(self) -> Iterator[str]:
        sessions = os.path.join(self._share_dir, "sessions")
        try:
            names = sorted(os.listdir(sessions))
        except OSError:
            return
        yield from (os.path.join(sessions, name) for name in names)


def _has_session(directory: str, session_id: str) -> bool:
    return (
        os.path.isdir(session_directory(directory, session_id)) or find_context_file(directory, session_id) is not None
    )
