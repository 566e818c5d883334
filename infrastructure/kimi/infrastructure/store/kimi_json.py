"""`kimi.json`: the known work directories and the last session of each (runtime spec 4.1, R-66)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import RunVar

from kimi.application.codec.context_line import parse_object
from kimi.application.codec.envelope import encode_json, replace_surrogates
from kimi.domain.errors import StoreFailed
from kimi.infrastructure.store.files.disk import make_private_directory, replace_file, wrap_os_errors
from kimi.infrastructure.store.files.lock import hold_lock
from kimi.infrastructure.store.layout import REGISTRY_FILE, REGISTRY_LOCK_FILE, normalize_path
from kimi.infrastructure.store.state import read_json_object

logger = logging.getLogger(__name__)

_write_lock = threading.Lock()
"""Writers of one process queue here, which is cheaper than polling the lock of the file."""


class _Marking:
    """One write for all sessions that are marked until it begins; the newest of them is stored."""

    def __init__(self) -> None:
        self.session_id = ""
        self.has_begun = False
        self.ended = anyio.Event()
        self.error: Exception | None = None


_markings: RunVar[dict[tuple[str, str], _Marking]] = RunVar("markings")
"""The newest write of an event loop that has not ended, by share directory and work directory."""


async def mark_last_session(share_dir: str, work_dir: str, session_id: str) -> None:
    """Store the last session of the work directory, as `set_last_session_id` does, in a thread.

    Turns of many sessions begin at the same moment: those that come before the write has begun share it. Shielded,
    because the others wait for it. Raises StoreFailed.
    """
    markings = _markings.get(dict[tuple[str, str], _Marking]())
    _markings.set(markings)
    key = (share_dir, work_dir)
    marking = previous = markings.get(key)
    if marking is None or marking.has_begun:
        marking = markings[key] = _Marking()
    marking.session_id = session_id
    with anyio.CancelScope(shield=True):
        if marking is not previous:
            await anyio.lowlevel.checkpoint()  # for those that begin in the same turn of the event loop
            if previous is not None:
                await previous.ended.wait()
            marking.has_begun = True
            try:
                await anyio.to_thread.run_sync(set_last_session_id, share_dir, work_dir, marking.session_id)
            except Exception as error:
                marking.error = error
            finally:
                marking.ended.set()
                if markings[key] is marking:
                    del markings[key]
        await marking.ended.wait()
    if marking.error is not None:
        raise marking.error


def read_last_session_id(share_dir: str, work_dir: str) -> str | None:
    """Return the last session of the work directory that the file names; None if it names none."""
    source = read_json_object(os.path.join(share_dir, REGISTRY_FILE)) or {}
    for entry in _object_entries(source):
        if _is_entry_for(entry, work_dir):
            value = entry.get("last_session_id")
            return value if isinstance(value, str) else None
    return None


def list_known_work_dirs(share_dir: str) -> list[str]:
    """Return the work directories that the file names, in its order, each once."""
    source = read_json_object(os.path.join(share_dir, REGISTRY_FILE)) or {}
    local = [entry.get("path") for entry in _object_entries(source) if entry.get("kaos", "local") == "local"]
    return list(dict.fromkeys(normalize_path(path) for path in local if isinstance(path, str) and path))


def set_last_session_id(share_dir: str, work_dir: str, session_id: str | None, *, only_if: str | None = None) -> None:
    """Store the last session of the work directory; with `only_if`, only if that is the one stored until now.

    Every other entry and unknown key is kept, also those that another process writes at the same time. Raises
    StoreFailed.
    """
    with _write_lock:
        _store_last_session_id(share_dir, work_dir, session_id, only_if)


def set_last_session_ids(share_dir: str, session_ids: Mapping[str, str | None]) -> None:
    """Store the last sessions of many work directories; None only makes a directory known. Raises StoreFailed."""
    missing = {_stored_path(work_dir): session_id for work_dir, session_id in session_ids.items()}

    def change(source: dict[str, Any]) -> bool:
        for entry in _object_entries(source):
            path = entry.get("path")
            if isinstance(path, str) and path in missing and _is_entry_for(entry, path):
                entry["last_session_id"] = missing.pop(path) or entry.get("last_session_id")
        for path, session_id in missing.items():
            _work_dir_entries(source).append({"path": path, "kaos": "local", "last_session_id": session_id})
        return True

    with _write_lock:
        _change_file(share_dir, change)


def _store_last_session_id(share_dir: str, work_dir: str, session_id: str | None, only_if: str | None) -> None:
    _change_file(share_dir, lambda source: _change_entry(source, _stored_path(work_dir), session_id, only_if))


def _change_file(share_dir: str, change: Callable[[dict[str, Any]], bool]) -> None:
    """Read the file, and write it anew if `change` returns True."""
    path = os.path.join(share_dir, REGISTRY_FILE)
    busy = StoreFailed(f"Another process keeps {REGISTRY_FILE} in {share_dir} locked; end it and try again.")
    with wrap_os_errors("write", path):
        make_private_directory(share_dir)
        with hold_lock(os.path.join(share_dir, REGISTRY_LOCK_FILE), busy):
            source = _read_or_set_aside(path)
            if change(source):
                replace_file(path, encode_json(source))


def _change_entry(source: dict[str, Any], work_dir: str, session_id: str | None, only_if: str | None) -> bool:
    for entry in _object_entries(source):
        if _is_entry_for(entry, work_dir):
            if only_if is not None and entry.get("last_session_id") != only_if:
                return False
            entry["last_session_id"] = session_id
            return True
    if only_if is not None:
        return False
    _work_dir_entries(source).append({"path": work_dir, "kaos": "local", "last_session_id": session_id})
    return True


def _read_or_set_aside(path: str) -> dict[str, Any]:
    """Return the content of the file; a file that is not a JSON object is moved away, not overwritten."""
    try:
        with open(path, "rb") as file:
            source = parse_object(file.read())
    except FileNotFoundError:
        return {}
    if source is None:
        backup_path = path + ".unreadable"
        os.replace(path, backup_path)
        logger.warning("%s is not a JSON object and was moved to %s", path, backup_path)
    return cast("dict[str, Any]", source or {})


def _work_dir_entries(source: dict[str, Any]) -> list[Any]:
    found = source.get("work_dirs")
    if not isinstance(found, list):
        found = source["work_dirs"] = []
    return cast("list[Any]", found)


def _object_entries(source: dict[str, Any]) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", entry) for entry in _work_dir_entries(source) if isinstance(entry, dict)]


def _is_entry_for(entry: dict[str, Any], work_dir: str) -> bool:
    return entry.get("path") == _stored_path(work_dir) and entry.get("kaos", "local") == "local"


def _stored_path(work_dir: str) -> str:
    return replace_surrogates(normalize_path(work_dir))
