"""Lists the sessions of a work directory without opening them (runtime spec 4.5)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from pydantic_core import from_json

from kimi.application.codec.context_line import decode_record
from kimi.application.codec.payloads import decode_user_input, require_object
from kimi.domain.content.message import JsonObject, Message
from kimi.domain.content.parts import join_text
from kimi.domain.errors import InvalidSessionId
from kimi.domain.history.session import SessionSummary, check_session_id, shorten_title
from kimi.infrastructure.store.event_line import parse_envelope
from kimi.infrastructure.store.files.lines import read_head_lines
from kimi.infrastructure.store.layout import (
    EVENTS_FILE,
    OLD_METADATA_FILE,
    STATE_FILE,
    decode_name,
    find_context_file,
    session_directory,
)
from kimi.infrastructure.store.state import find_legacy_title, read_json_object

_HEAD_BYTES = 256 * 1024


def list_summaries(directory: str, work_dir: str) -> list[SessionSummary]:
    """Return the sessions that are not empty, the one that was written last first."""
    found = (_summarize_session(directory, name, work_dir) for name in _list_session_ids(directory))
    return sorted((one for one in found if one is not None), key=lambda one: one.updated_at, reverse=True)


def _list_session_ids(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            names = {one.name if one.is_dir() else one.name.removesuffix(".jsonl") for one in entries}
    except OSError:
        return
    for name in names:
        try:
            yield check_session_id(decode_name(name))
        except InvalidSessionId:
            continue


def _summarize_session(directory: str, session_id: str, work_dir: str) -> SessionSummary | None:
    context = find_context_file(directory, session_id)
    if context is None:
        return None
    try:
        updated_at = os.stat(context).st_mtime
    except OSError:  # removed during the listing
        return None
    path = session_directory(directory, session_id)
    prompt = find_first_input(read_head_lines(os.path.join(path, EVENTS_FILE), _HEAD_BYTES))
    if prompt is None and not _has_message(context):
        return None  # nobody has asked anything: a title alone, or what starts before the first prompt, is no session
    state = read_json_object(os.path.join(path, STATE_FILE)) or {}
    title = format_title(_find_stored_title(state, path) or prompt)
    return SessionSummary(session_id, work_dir, title, updated_at, state.get("archived") is True)


def format_title(text: str | None) -> str:
    """Return a title for a listing: at most 50 characters."""
    return shorten_title(text or "") or "Untitled"


def _find_stored_title(state: Mapping[str, Any], path: str) -> str | None:
    title = state.get("custom_title")
    if isinstance(title, str) and title.strip():
        return title
    return find_legacy_title(read_json_object(os.path.join(path, OLD_METADATA_FILE)) or {})


def find_first_input(lines: Iterable[bytes]) -> str | None:
    """Return the input of the first turn in the lines of an event log, None if there is no turn.

    A last line that is cut is read as far as it goes.
    """
    for line in lines:
        message = parse_envelope(line) or _parse_cut_line(line)
        if message.get("type") == "TurnBegin":
            return extract_input_text(message.get("payload"))
    return None


def _parse_cut_line(line: bytes) -> JsonObject:
    """Parse what is left of a line that the head cut off: its input may hold a whole picture."""
    try:
        return require_object(from_json(line, allow_partial="trailing-strings").get("message"), "message")
    except (ValueError, AttributeError):
        return {}


def extract_input_text(payload: object) -> str:
    """Return the text in the payload of a turn's begin; empty if there is none."""
    value = cast("JsonObject", payload).get("user_input") if isinstance(payload, dict) else None
    if isinstance(value, list):
        value = [part for part in cast("list[Any]", value) if "text" in part]
    try:
        return join_text(decode_user_input(value))
    except (ValueError, TypeError):
        return ""


def _has_message(context: str) -> bool:
    if any(isinstance(decode_record(line), Message) for line in read_head_lines(context, _HEAD_BYTES)):
        return True
    return os.path.getsize(context) > _HEAD_BYTES  # its first message is longer than the head
