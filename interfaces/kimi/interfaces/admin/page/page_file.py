"""Writes the page of a stored session into a file: its events are read from the disk, one after the other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import cast

from kimi.application.codec.context_line import decode_record, parse_object
from kimi.application.codec.envelope import replace_surrogates
from kimi.application.codec.event_json import decode_event
from kimi.application.sessions.export_session import StoredSession
from kimi.domain.content.message import JsonObject, Message
from kimi.domain.errors import StoreFailed
from kimi.interfaces.admin.page.session_page import PageFacts, SessionPage, format_time
from kimi.interfaces.admin.page.session_story import TimedEvent, tell_message, tell_turns
from kimi.interfaces.version import __version__


def write_session_page(session: StoredSession, path: str, share_dir: str, environ: Mapping[str, str]) -> None:
    """Write the page beside `path`, readable by its owner only, then rename it. Raises StoreFailed."""
    from kimi.interfaces.bootstrap.store import build_secret_mask

    paths = {file.name: file.path for file in session.files}
    try:
        page = SessionPage(build_secret_mask(share_dir, environ))
        _write_file(path, page.write(_collect_facts(session, paths), tell_turns(_read_events(paths))))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StoreFailed(
            f"cannot write {replace_surrogates(path)}: {reason}; name another file with --output."
        ) from error


def _collect_facts(session: StoredSession, paths: Mapping[str, str]) -> PageFacts:
    state = _read_object(paths.get("state.json"))
    title = state.get("custom_title")
    facts = [("Session", session.id), ("Written by", f"kimi-wire {__version__}")]
    for name, at in (("First activity", session.first_activity), ("Last activity", session.last_activity)):
        if at is not None:
            facts.append((name, format_time(at)))
    return PageFacts(title if isinstance(title, str) and title.strip() else f"Session {session.id}", facts)


def _read_object(path: str | None) -> Mapping[str, object]:
    if path is None:
        return {}
    with suppress(OSError), open(path, "rb") as file:
        return parse_object(file.read(1 << 20)) or {}
    return {}


def _read_events(paths: Mapping[str, str]) -> Iterator[TimedEvent]:
    """Yield the events of a session; where none were recorded, what its messages tell."""
    found = False
    if "wire.jsonl" in paths:
        for event in _read_lines(paths["wire.jsonl"], _decode_event_line):
            found = True
            yield event
    if not found and "context.jsonl" in paths:
        yield from _read_lines(paths["context.jsonl"], _decode_context_line)


def _read_lines(path: str, decode: Callable[[bytes], Iterator[TimedEvent]]) -> Iterator[TimedEvent]:
    with open(path, "rb") as file:
        for line in file:
            yield from decode(line)


def _decode_event_line(line: bytes) -> Iterator[TimedEvent]:
    source = parse_object(line) or {}
    message, at = source.get("message"), source.get("timestamp")
    event = decode_event(cast("JsonObject", message)) if isinstance(message, dict) else None
    if event is not None:
        yield float(at) if isinstance(at, (int, float)) else 0.0, event


def _decode_context_line(line: bytes) -> Iterator[TimedEvent]:
    record = decode_record(line)
    if isinstance(record, Message):
        for event in tell_message(record):
            yield 0.0, event


def _write_file(path: str, pieces: Iterator[str]) -> None:
    """Write a private file next to `path` and rename it to `path`; remove it if anything fails."""
    if os.path.isdir(path):
        raise IsADirectoryError(0, "Is a directory")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(0, "Is not a regular file")
    descriptor, fresh = tempfile.mkstemp(prefix=".kimi-export-", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise
