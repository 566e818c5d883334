"""Stored sessions: ids, state and the records that are persisted (runtime spec 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kimi.domain.content.message import Message
from kimi.domain.errors import InvalidSessionId
from kimi.domain.tools.tool import TodoItem
from kimi.domain.turn import UsageTotal

MAX_ID_LENGTH = 128
MAX_ID_BYTES = 240
"""File systems usually allow names of 255 bytes; the rest is for suffixes."""
TITLE_LENGTH = 50
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]+"
)


@dataclass(frozen=True, slots=True)
class SystemPromptRecord:
    """The frozen system prompt; the first line of a context file."""

    content: str


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A position in the context; ids count from 0."""

    id: int


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """The token count that is valid for all records before it."""

    token_count: int


ContextRecord: TypeAlias = SystemPromptRecord | CheckpointRecord | UsageRecord | Message


@dataclass(frozen=True, slots=True)
class SessionState:
    """The settings of a session (`state.json`, runtime spec 4.4).

    `unknown_keys` keeps the keys that this program does not know or does not change.
    """

    yolo: bool = False
    afk: bool = False
    edits: bool = False
    auto_approve_actions: frozenset[str] = frozenset()
    additional_dirs: tuple[str, ...] = ()
    custom_title: str | None = None
    plan_mode: bool = False
    plan_session_id: str | None = None
    plan_slug: str | None = None
    todos: tuple[TodoItem, ...] = ()
    model_alias: str | None = None
    """The configuration key of the model that was chosen for this session, or None."""
    thinking: bool | None = None
    thinking_effort: str | None = None
    usage: UsageTotal | None = None
    """What the session has used; None if nobody has counted."""
    set_archived: bool | None = None
    """Whether to put the session away from now on, or to bring it back; None leaves that as it is stored."""
    unknown_keys: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One entry of a listing; `updated_at` is in Unix seconds."""

    id: str
    work_dir: str
    title: str
    updated_at: float
    is_archived: bool = False
    """Whether the user has put it away."""


@dataclass(frozen=True, slots=True)
class StoredSessionInfo:
    """What the files of a session tell about it; `size` is in bytes.

    `is_open` says whether a process has it open now, `owner` the id of that process, if it is known.
    """

    directory: str
    size: int
    is_open: bool
    owner: int | None = None


def check_session_id(text: str) -> str:
    """Return `text` if it is a valid session id.

    Raises:
        InvalidSessionId: it is blank, `.` or `..`, longer than 128 characters or 240 bytes, or holds a slash, a
            backslash or a control character (R-56).
    """
    if not text.strip() or text in (".", ".."):
        raise InvalidSessionId("A session id must not be blank, '.' or '..'.")
    if len(text) > MAX_ID_LENGTH:
        raise InvalidSessionId(f"A session id must not be longer than {MAX_ID_LENGTH} characters.")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
        raise InvalidSessionId(f"A session id must not be longer than {MAX_ID_BYTES} bytes.")
    if any(char in "/\\" or ord(char) < 32 or ord(char) == 127 for char in text):
        raise InvalidSessionId("A session id must not contain slashes, backslashes or control characters.")
    return text


def shorten_title(text: str, width: int = TITLE_LENGTH) -> str:
    """Return `text` on one line, cut at a word boundary to `width` characters with an ellipsis.

    Titles are shown in lists and terminals: characters that control or reorder them become U+FFFD.
    """
    line = _collapse_beginning(text, width)
    if len(line) <= width:
        return line
    cut = line[: width - 1]
    if line[width - 1] != " ":
        cut = cut.rpartition(" ")[0] or cut
    return cut.rstrip() + "…"


def _collapse_beginning(text: str, length: int) -> str:
    """Return `text` on one line, or a beginning of it longer than `length`, because a prompt may have megabytes."""
    words: list[str] = []
    size = 0
    for found in re.finditer(r"\S+", text):
        words.append(_HIDDEN.sub("\ufffd", found[0]))
        size += len(words[-1]) + 1
        if size > length + 1:
            break
    return " ".join(words)
