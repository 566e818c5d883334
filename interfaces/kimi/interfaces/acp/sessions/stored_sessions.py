"""List stored sessions in pages, and locate a stored session (acp spec 4.3, 4.9)."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from kimi.application.ports import SessionCatalog
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import InvalidSessionId
from kimi.domain.history.session import SessionSummary
from kimi.interfaces.acp.sessions.session_location import SessionLocation
from kimi.interfaces.acp.transport.errors import invalid_params, session_unknown

PAGE_SIZE: Final = 50


def build_page(summaries: Iterable[SessionSummary], cursor: object) -> JsonObject:
    """Return one page of a listing, newest first; `cursor` is where the page before it ended.

    Raises RpcError for an invalid cursor.
    """
    after = None if cursor is None else _decode_cursor(cursor)
    ordered = sorted(summaries, key=_sort_key)
    rest = ordered if after is None else [one for one in ordered if _sort_key(one) > after]
    result: dict[str, Any] = {"sessions": [_describe_session(one) for one in rest[:PAGE_SIZE]]}
    if len(rest) > PAGE_SIZE:
        result["nextCursor"] = _encode_cursor(rest[PAGE_SIZE - 1])
    return result


def locate_stored_session(catalog: SessionCatalog, session_id: str, location: SessionLocation) -> SessionLocation:
    """Return the location of a stored session. If its own directory is gone, it has moved to the one in `location`.

    Blocks. Raises RpcError if the session is unknown or belongs to another directory (A-45).
    """
    try:
        if catalog.has_session(location.cwd, session_id):
            return location
        owners = catalog.find_work_dirs(session_id)
    except InvalidSessionId as error:
        raise invalid_params(f"sessionId: {error}") from None
    if not owners:
        raise session_unknown(session_id)
    gone = next((path for path in owners if path is not None and not os.path.isdir(path)), None)
    if gone is None:
        raise invalid_params("session belongs to another directory", cwd=location.cwd)
    return replace(location, stored_work_dir=gone)


def _sort_key(summary: SessionSummary) -> tuple[float, str]:
    return -summary.updated_at, summary.id


def _describe_session(summary: SessionSummary) -> JsonObject:
    updated = datetime.fromtimestamp(summary.updated_at, UTC).isoformat(timespec="seconds")
    return {"sessionId": summary.id, "cwd": summary.work_dir, "title": summary.title, "updatedAt": updated}


def _encode_cursor(last: SessionSummary) -> str:
    return base64.urlsafe_b64encode(json.dumps(_sort_key(last)).encode()).decode()


def _decode_cursor(cursor: object) -> tuple[float, str]:
    try:
        position: Any = json.loads(base64.urlsafe_b64decode(str(cursor).encode("ascii", "strict")))
        time, session_id = cast("Sequence[Any]", position)
        return float(time), str(session_id)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise invalid_params("cursor: it does not come from this listing") from None
