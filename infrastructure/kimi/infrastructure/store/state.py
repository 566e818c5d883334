"""`state.json`: the settings of a session, shared with other programs (runtime spec 4.4).

Reading is tolerant: a file or a member that cannot be used counts as absent. Writing keeps every unknown key, and what
other programs changed meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from kimi.application.codec.context_line import parse_object
from kimi.application.codec.envelope import encode_json, shape_total
from kimi.application.codec.payloads import decode_todo_item, read_member, require_object
from kimi.domain.history.session import SessionState
from kimi.domain.tools.tool import TodoItem
from kimi.domain.turn import Cost, TokenUsage, UsageTotal

logger = logging.getLogger(__name__)
T = TypeVar("T")

_OWN_KEYS = frozenset(
    {
        *("approval", "additional_dirs", "custom_title", "plan_mode", "plan_session_id", "plan_slug", "todos"),
        *("model_alias", "thinking", "thinking_effort", "usage"),
    }
)
_TOKEN_COUNTS = ("input_other", "output", "input_cache_read", "input_cache_creation")
_MIGRATED_KEYS = (
    "title_generated",
    "title_generate_attempts",
    "archived",
    "archived_at",
    "auto_archive_exempt",
    "wire_mtime",
)


def read_json_object(path: str) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None.

    A file that exists but cannot be used causes a warning.
    """
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
    """Decode the state in a `state.json`. Directories that no longer exist are left out."""
    approval = _read_member(source, "approval", _check_object, {})
    return SessionState(
        yolo=_read_member(approval, "yolo", _check_flag, False),
        afk=_read_member(approval, "afk", _check_flag, False),
        edits=_read_member(approval, "edits", _check_flag, False),
        auto_approve_actions=frozenset(_read_member(approval, "auto_approve_actions", _check_texts, ())),
        additional_dirs=tuple(filter(os.path.isdir, _read_member(source, "additional_dirs", _check_texts, ()))),
        custom_title=_read_member(source, "custom_title", _check_text, None),
        plan_mode=_read_member(source, "plan_mode", _check_flag, False),
        plan_session_id=_read_member(source, "plan_session_id", _check_text, None),
        plan_slug=_read_member(source, "plan_slug", _check_text, None),
        todos=_read_member(source, "todos", _decode_todos, ()),
        model_alias=_read_member(source, "model_alias", _check_text, None),
        thinking=_read_member(source, "thinking", _check_flag, None),
        thinking_effort=_read_member(source, "thinking_effort", _check_text, None),
        usage=_read_member(source, "usage", _decode_usage, None),
        unknown_keys=_collect_foreign(source, approval),
    )


def merge_state(
    state: SessionState, stored: Mapping[str, Any] | None, stored_title: str | None
) -> tuple[bytes, SessionState]:
    """Return the encoded file for `state`, and the state that then holds.

    `stored` is the file as it is now, `stored_title` the title that this process last read or wrote: if the file has
    another title, another program chose it and it stays (R-61).
    """
    on_disk = stored or {}
    title_there = _read_member(on_disk, "custom_title", _check_text, None)
    title = state.custom_title if stored is None or title_there == stored_title else title_there
    approval = _read_member(on_disk, "approval", _check_object, {})
    foreign = {**state.unknown_keys, **_collect_foreign(on_disk, approval)}
    if state.set_archived is not None:
        foreign["archived"] = state.set_archived
    kept = {key: value for key, value in foreign.items() if key != "approval"}
    encoded = {
        "version": 1,
        **kept,
        "approval": {
            **_read_member(foreign, "approval", _check_object, {}),
            "yolo": state.yolo,
            "afk": state.afk,
            **({"edits": True} if state.edits else {}),  # other programs do not know it
            "auto_approve_actions": sorted(state.auto_approve_actions),
        },
        "additional_dirs": list(state.additional_dirs),
        "custom_title": title,
        "plan_mode": state.plan_mode,
        "plan_session_id": state.plan_session_id,
        "plan_slug": state.plan_slug,
        "todos": [{"title": item.title, "status": item.status} for item in state.todos],
        **_encode_chosen_model(state),
        **_encode_usage(state),
    }
    return encode_json(encoded), replace(state, custom_title=title, set_archived=None, unknown_keys=foreign)


def with_legacy_metadata(source: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Add the title and the archive fields of a legacy `metadata.json` where `source` lacks them."""
    found = dict(source)
    title = find_legacy_title(old)
    if title is not None and not found.get("custom_title"):
        found["custom_title"] = title
    for key in _MIGRATED_KEYS:
        if key in old and not found.get(key):
            found[key] = old[key]
    return found


def find_legacy_title(old: Mapping[str, Any]) -> str | None:
    """Return the title in a legacy `metadata.json`; None if it has none."""
    title = old.get("custom_title") or old.get("title")
    return title if isinstance(title, str) and title.strip() and title != "Untitled" else None


def _encode_chosen_model(state: SessionState) -> dict[str, Any]:
    """Return keys that other programs do not know, only if a model was chosen."""
    if state.model_alias is None:
        return {}
    effort = {} if state.thinking_effort is None else {"thinking_effort": state.thinking_effort}
    return {"model_alias": state.model_alias, "thinking": state.thinking, **effort}


def _encode_usage(state: SessionState) -> dict[str, Any]:
    """Return a key that other programs do not know, only if tokens were counted."""
    return {} if state.usage is None else {"usage": {**shape_total(state.usage), "calls": state.usage.calls}}


def _decode_usage(value: Any) -> UsageTotal:
    source = require_object(value, "usage")
    counts = [read_member(source, name, int) for name in (*_TOKEN_COUNTS, "calls")]
    if source.get("cost") is None:
        return UsageTotal(TokenUsage(*counts[:-1]), None, counts[-1])
    cost = require_object(source["cost"], "cost")
    known = Cost(read_member(cost, "amount", float), read_member(cost, "currency", str))
    return UsageTotal(TokenUsage(*counts[:-1]), known, counts[-1])


def _collect_foreign(source: Mapping[str, Any], approval: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in source.items() if key not in _OWN_KEYS}
    # Unknown members of `approval` are kept under that name.
    rest = {k: v for k, v in approval.items() if k not in ("yolo", "afk", "edits", "auto_approve_actions")}
    if rest:
        found["approval"] = rest
    return found


def _read_member(source: Mapping[str, Any], key: str, check: Callable[[Any], T], default: T) -> T:
    value = source.get(key)
    if value is None:
        return default
    try:
        return check(value)
    except ValueError:
        logger.warning("`%s` in a session's state has a wrong shape and is not used", key)
        return default


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _check_text(value: Any) -> str | None:
    if not isinstance(value, str):
        raise ValueError
    return value


def _check_texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in _check_list(value) if isinstance(item, str))


def _decode_todos(value: Any) -> tuple[TodoItem, ...]:
    return tuple(decode_todo_item(item) for item in _check_list(value))


def _check_list(value: Any) -> list[object]:
    if not isinstance(value, list):
        raise ValueError
    return cast("list[object]", value)


def _check_object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return cast("Mapping[str, Any]", value)
