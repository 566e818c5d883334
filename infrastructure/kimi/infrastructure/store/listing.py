"""Which sessions a work dir has, without opening them (runtime spec 4.5)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic_core import from_json

from kimi.application.codec.context_line import decode_record
from kimi.application.codec.payloads import decode_user_input, json_object
from kimi.domain.content.message import JsonObject, Message
from kimi.domain.content.parts import joined_text
from kimi.domain.errors import InvalidSessionId
from kimi.domain.history.session import SessionSummary, checked_session_id, shortened_title
from kimi.infrastructure.store.event_line import message_of
from kimi.infrastructure.store.files.lines import head_lines
from kimi.infrastructure.store.layout import CONTEXT, EVENTS, OLD_METADATA, STATE
from kimi.infrastructure.store.state import old_title, read_raw

_HEAD = 256 * 1024


def context_path(directory: str, session_id: str) -> str | None:
    """The context file of a session in the sessions directory of a work dir, the oldest layout included."""
    for path in (os.path.join(directory, session_id, CONTEXT), os.path.join(directory, session_id + ".jsonl")):
        if os.path.isfile(path):
            return path
    return None


def summaries(directory: str, work_dir: str) -> list[SessionSummary]:
    """The sessions that are not empty, the one that was written last first."""
    found = (_summary(directory, name, work_dir) for name in _names(directory))
    return sorted((one for one in found if one is not None), key=lambda one: one.updated_at, reverse=True)


def _names(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            names = {one.name if one.is_dir() else one.name.removesuffix(".jsonl") for one in entries}
    except OSError:
        return
    for name in names:
        try:
            yield checked_session_id(name)
        except InvalidSessionId:
            continue


def _summary(directory: str, session_id: str, work_dir: str) -> SessionSummary | None:
    context = context_path(directory, session_id)
    if context is None:
        return None
    try:
        updated_at = os.stat(context).st_mtime
    except OSError:  # removed while we look
        return None
    path = os.path.join(directory, session_id)
    title = _stored_title(path)
    if title is None:
        title = first_input(head_lines(os.path.join(path, EVENTS), _HEAD))
    if title is None and not _has_message(context):
        return None
    return SessionSummary(session_id, work_dir, shown_title(title), updated_at)


def shown_title(text: str | None) -> str:
    """A title for a listing: at most 50 characters."""
    return shortened_title(text or "") or "Untitled"


def _stored_title(path: str) -> str | None:
    title = (read_raw(os.path.join(path, STATE)) or {}).get("custom_title")
    if isinstance(title, str) and title.strip():
        return title
    return old_title(read_raw(os.path.join(path, OLD_METADATA)) or {})


def first_input(lines: Iterable[bytes]) -> str | None:
    """The input of the first turn in the lines of an event log; empty when there are only other events.

    None when there are none. A last line that is cut is read as far as it goes.
    """
    seen = None
    for line in lines:
        message = message_of(line) or _cut_message(line)
        if message.get("type") == "TurnBegin":
            return _input_text(message.get("payload"))
        seen = "" if message else seen
    return seen


def _cut_message(line: bytes) -> JsonObject:
    """What can be read of a line that the head cut off: its input may hold a whole picture."""
    try:
        return json_object(from_json(line, allow_partial="trailing-strings").get("message"), "message")
    except (ValueError, AttributeError):
        return {}


def _input_text(payload: object) -> str:
    value = cast("JsonObject", payload).get("user_input") if isinstance(payload, dict) else None
    if isinstance(value, list):
        value = [part for part in cast("list[Any]", value) if "text" in part]
    try:
        return joined_text(decode_user_input(value))
    except (ValueError, TypeError):
        return ""


def _has_message(context: str) -> bool:
    if any(isinstance(decode_record(line), Message) for line in head_lines(context, _HEAD)):
        return True
    return os.path.getsize(context) > _HEAD  # its first message is longer than what we look at
