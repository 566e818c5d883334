"""Looks into a stored session without opening it: its prompts, its size, and what still uses it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from kimi.application.codec.context_line import decode_record, parse_object
from kimi.domain.background import TERMINAL_STATUSES
from kimi.domain.content.message import JsonObject, Message, message_text
from kimi.domain.history.session import StoredSessionInfo
from kimi.infrastructure.background.task_files import HEARTBEAT_FILE, RUNTIME_FILE, read_object
from kimi.infrastructure.store.event_line import parse_envelope, read_timed_envelopes
from kimi.infrastructure.store.files.lines import read_lines_until
from kimi.infrastructure.store.files.lock import FileLock, is_locked
from kimi.infrastructure.store.layout import (
    EVENTS_FILE,
    LOCK_FILE,
    TASKS_DIRECTORY,
    find_context_file,
    session_directory,
)
from kimi.infrastructure.store.session_listing import extract_input_text

_BEGIN = b'"TurnBegin"'
_LIFE_SIGN_S = 20.0
"""How old the last sign of life of a task's worker may be, in seconds."""


def read_prompts(directory: str, session_id: str) -> Iterator[str]:
    """Yield the prompts of a session in the sessions directory of a work dir, from its log or else from its context."""
    path = os.path.join(session_directory(directory, session_id), EVENTS_FILE)
    has_turns = False
    for line in _read_lines(path):
        if _BEGIN in line[:200] and (parse_envelope(line) or {}).get("type") == "TurnBegin":
            has_turns = True
            yield extract_input_text((parse_envelope(line) or {}).get("payload"))
    context = None if has_turns else find_context_file(directory, session_id)
    for line in _read_lines(context) if context else ():
        record = decode_record(line)
        if isinstance(record, Message) and record.role == "user":
            yield message_text(record)


def read_events(directory: str, session_id: str) -> Iterator[tuple[float, JsonObject]]:
    """Yield the events in the log of a session in the sessions directory of a work dir, each with its time."""
    path = os.path.join(session_directory(directory, session_id), EVENTS_FILE)
    for envelope, written in read_timed_envelopes(path, _read_lines(path)):
        if (event := parse_object(envelope)) is not None and isinstance(event.get("payload"), dict):
            yield written, event


def inspect_session(directory: str, session_id: str) -> StoredSessionInfo:
    """Return what the files of a session in the sessions directory of a work dir tell about it."""
    path = session_directory(directory, session_id)
    lock = os.path.join(path, LOCK_FILE)
    is_open = is_locked(lock)
    return StoredSessionInfo(path, _sum_sizes(path), is_open, FileLock(lock).read_owner() if is_open else None)


def has_running_task(directory: str) -> bool:
    """Return whether a background task of the session in `directory` still runs."""
    tasks = os.path.join(directory, TASKS_DIRECTORY)
    try:
        names = os.listdir(tasks)
    except OSError:
        return False
    return any(_is_running(os.path.join(tasks, name)) for name in names)


def _is_running(task: str) -> bool:
    try:
        heard = os.stat(os.path.join(task, HEARTBEAT_FILE)).st_mtime
    except OSError:
        return False
    return time.time() - heard < _LIFE_SIGN_S and read_object(task, RUNTIME_FILE).get("status") not in TERMINAL_STATUSES


def _read_lines(path: str) -> Iterator[bytes]:
    try:
        yield from read_lines_until(path, os.path.getsize(path))
    except OSError:  # gone, or not readable: there is nothing to search
        return


def _sum_sizes(directory: str) -> int:
    """Return the size of all regular files; links are not followed."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path) and os.path.isfile(path):
                total += os.path.getsize(path)
    return total
