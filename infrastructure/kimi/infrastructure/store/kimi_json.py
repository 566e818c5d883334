"""`kimi.json`: which work dirs there are and the last session of each (runtime spec 4.1, R-66)."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, cast

from kimi.application.codec.context_line import parse_object
from kimi.application.codec.envelope import encode_json, scrubbed
from kimi.domain.errors import StoreFailed
from kimi.infrastructure.store.files.disk import failing_as, make_private_directory, replace_file
from kimi.infrastructure.store.files.lock import sole_owner
from kimi.infrastructure.store.layout import REGISTRY, REGISTRY_LOCK, normal_path
from kimi.infrastructure.store.state import read_raw

logger = logging.getLogger(__name__)

_newest: dict[tuple[str, str], object] = {}
"""Who wants the last session of a work dir to be stored, of those of this process that wait: the newest of them."""
_one_writes = threading.Lock()
"""Sessions of one process wait here for each other, which costs less than to try the lock of the file again."""


def last_session_id(share_dir: str, work_dir: str) -> str | None:
    """What the file names as the last session of the work dir; None when it names none."""
    source = read_raw(os.path.join(share_dir, REGISTRY)) or {}
    for entry in _entries(source):
        if _is_for(entry, work_dir):
            value = entry.get("last_session_id")
            return value if isinstance(value, str) else None
    return None


def known_work_dirs(share_dir: str) -> list[str]:
    """The work dirs that the file names, in its order, each once."""
    source = read_raw(os.path.join(share_dir, REGISTRY)) or {}
    local = [entry.get("path") for entry in _entries(source) if entry.get("kaos", "local") == "local"]
    return list(dict.fromkeys(normal_path(path) for path in local if isinstance(path, str) and path))


def set_last_session_id(share_dir: str, work_dir: str, session_id: str | None, *, only_if: str | None = None) -> None:
    """Store the last session of the work dir. With `only_if`, only where that is the one stored until now.

    Every other entry and unknown key is kept, also those that another process writes at the same time. Of several
    that want to store one at the same time in this process, the newest does. Raises StoreFailed.
    """
    key, mine = (share_dir, work_dir), object()
    if only_if is None:
        _newest[key] = mine
    with _one_writes:
        if only_if is None:
            if _newest.get(key) is not mine:
                return  # what would be stored now is replaced at once, by who waits behind
            del _newest[key]
        _store(share_dir, work_dir, session_id, only_if)


def _store(share_dir: str, work_dir: str, session_id: str | None, only_if: str | None) -> None:
    path = os.path.join(share_dir, REGISTRY)
    busy = StoreFailed(f"Another process keeps {REGISTRY} in {share_dir} locked; end it and try again.")
    with failing_as("write", path):
        make_private_directory(share_dir)
        with sole_owner(os.path.join(share_dir, REGISTRY_LOCK), busy):
            source = _readable(path)
            if _changed(source, _path_as_stored(work_dir), session_id, only_if):
                replace_file(path, encode_json(source))


def _changed(source: dict[str, Any], work_dir: str, session_id: str | None, only_if: str | None) -> bool:
    for entry in _entries(source):
        if _is_for(entry, work_dir):
            if only_if is not None and entry.get("last_session_id") != only_if:
                return False
            entry["last_session_id"] = session_id
            return True
    if only_if is not None:
        return False
    _work_dirs(source).append({"path": work_dir, "kaos": "local", "last_session_id": session_id})
    return True


def _readable(path: str) -> dict[str, Any]:
    """The content of the file; one that is not a JSON object is put aside, not overwritten."""
    try:
        with open(path, "rb") as file:
            source = parse_object(file.read())
    except FileNotFoundError:
        return {}
    if source is None:
        aside = path + ".unreadable"
        os.replace(path, aside)
        logger.warning("%s is not a JSON object and was moved to %s", path, aside)
    return cast("dict[str, Any]", source or {})


def _work_dirs(source: dict[str, Any]) -> list[Any]:
    found = source.get("work_dirs")
    if not isinstance(found, list):
        found = source["work_dirs"] = []
    return cast("list[Any]", found)


def _entries(source: dict[str, Any]) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", entry) for entry in _work_dirs(source) if isinstance(entry, dict)]


def _is_for(entry: dict[str, Any], work_dir: str) -> bool:
    return entry.get("path") == _path_as_stored(work_dir) and entry.get("kaos", "local") == "local"


def _path_as_stored(work_dir: str) -> str:
    return scrubbed(normal_path(work_dir))
