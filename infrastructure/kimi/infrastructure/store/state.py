"""`state.json`: the settings of a session, shared with other programs (runtime spec 4.4).

Reading is tolerant: a file or a member that cannot be used counts as absent. Writing keeps every key that is not
ours, and what others changed meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from kimi.application.codec.context_line import parse_object
from kimi.application.codec.envelope import encode_json
from kimi.application.codec.payloads import decode_todo_item
from kimi.domain.history.session import SessionState
from kimi.domain.tools.tool import TodoItem

logger = logging.getLogger(__name__)
T = TypeVar("T")

_OURS = frozenset(
    {
        *("approval", "additional_dirs", "custom_title", "plan_mode", "plan_session_id", "plan_slug", "todos"),
        *("model_alias", "thinking"),
    }
)
_MIGRATED = (
    "title_generated",
    "title_generate_attempts",
    "archived",
    "archived_at",
    "auto_archive_exempt",
    "wire_mtime",
)


def read_raw(path: str) -> dict[str, Any] | None:
    """The object in a JSON file; None without one, with a warning when there is a file that cannot be used."""
    try:
        with open(path, "rb") as file:
            source = parse_object(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, error.strerror)
        return None
    if source is None:
        logger.warning("%s is not a JSON object and is not used", path)
    return cast("dict[str, Any] | None", source)


def decode_state(source: Mapping[str, Any]) -> SessionState:
    """The state in a `state.json`. Directories that no longer exist are left out."""
    approval = _read(source, "approval", _object, {})
    return SessionState(
        yolo=_read(approval, "yolo", _flag, False),
        afk=_read(approval, "afk", _flag, False),
        auto_approve_actions=frozenset(_read(approval, "auto_approve_actions", _texts, ())),
        additional_dirs=tuple(filter(os.path.isdir, _read(source, "additional_dirs", _texts, ()))),
        custom_title=_read(source, "custom_title", _text, None),
        plan_mode=_read(source, "plan_mode", _flag, False),
        plan_session_id=_read(source, "plan_session_id", _text, None),
        plan_slug=_read(source, "plan_slug", _text, None),
        todos=_read(source, "todos", _todos, ()),
        model_alias=_read(source, "model_alias", _text, None),
        thinking=_read(source, "thinking", _flag, None),
        foreign=_foreign(source, approval),
    )


def merged_state(
    state: SessionState, disk: Mapping[str, Any] | None, stored_title: str | None
) -> tuple[bytes, SessionState]:
    """What to write for `state`, and the state that then holds.

    `disk` is the file as it is now, `stored_title` the title that we last read or wrote: when the file has another
    one, somebody else chose it and it stays (R-61).
    """
    there = disk or {}
    title_there = _read(there, "custom_title", _text, None)
    title = state.custom_title if disk is None or title_there == stored_title else title_there
    approval = _read(there, "approval", _object, {})
    foreign = {**state.foreign, **_foreign(there, approval)}
    kept = {key: value for key, value in foreign.items() if key != "approval"}
    encoded = {
        "version": 1,
        **kept,
        "approval": {
            **_read(foreign, "approval", _object, {}),
            "yolo": state.yolo,
            "afk": state.afk,
            "auto_approve_actions": sorted(state.auto_approve_actions),
        },
        "additional_dirs": list(state.additional_dirs),
        "custom_title": title,
        "plan_mode": state.plan_mode,
        "plan_session_id": state.plan_session_id,
        "plan_slug": state.plan_slug,
        "todos": [{"title": item.title, "status": item.status} for item in state.todos],
        **_chosen_model(state),
    }
    return encode_json(encoded), replace(state, custom_title=title, foreign=foreign)


def with_old_metadata(source: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """`source` with the title and the archive fields of a legacy `metadata.json`, where it says nothing itself."""
    found = dict(source)
    title = old_title(old)
    if title is not None and not found.get("custom_title"):
        found["custom_title"] = title
    for key in _MIGRATED:
        if key in old and not found.get(key):
            found[key] = old[key]
    return found


def old_title(old: Mapping[str, Any]) -> str | None:
    """The title in a legacy `metadata.json`; None when none was given."""
    title = old.get("custom_title") or old.get("title")
    return title if isinstance(title, str) and title.strip() and title != "Untitled" else None


def _chosen_model(state: SessionState) -> dict[str, Any]:
    """Keys that other programs do not know: only there when a model was chosen."""
    if state.model_alias is None:
        return {}
    return {"model_alias": state.model_alias, "thinking": state.thinking}


def _foreign(source: Mapping[str, Any], approval: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in source.items() if key not in _OURS}
    # Unknown members of `approval` are kept under that name.
    rest = {k: v for k, v in approval.items() if k not in ("yolo", "afk", "auto_approve_actions")}
    if rest:
        found["approval"] = rest
    return found


def _read(source: Mapping[str, Any], key: str, check: Callable[[Any], T], default: T) -> T:
    value = source.get(key)
    if value is None:
        return default
    try:
        return check(value)
    except ValueError:
        logger.warning("`%s` in a session's state has a wrong shape and is not used", key)
        return default


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in _list(value) if isinstance(item, str))


def _todos(value: Any) -> tuple[TodoItem, ...]:
    return tuple(decode_todo_item(item) for item in _list(value))


def _list(value: Any) -> list[object]:
    if not isinstance(value, list):
        raise ValueError
    return cast("list[object]", value)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return cast("Mapping[str, Any]", value)
