"""The listing of stored sessions in pages, and where a session that is asked for is stored (acp spec 4.3, 4.9)."""

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
from kimi.interfaces.acp.sessions.session_settings import SessionPlace
from kimi.interfaces.acp.transport.errors import invalid_params, session_unknown

PAGE: Final = 50


def page_of(summaries: Iterable[SessionSummary], cursor: object) -> JsonObject:
    """One page of a listing, newest first; `cursor` is where the page before it ended. Raises Refused."""
    after = None if cursor is None else _position(cursor)
    ordered = sorted(summaries, key=_order)
    rest = ordered if after is None else [one for one in ordered if _order(one) > after]
    result: dict[str, Any] = {"sessions": [_info(one) for one in rest[:PAGE]]}
    if len(rest) > PAGE:
        result["nextCursor"] = _cursor(rest[PAGE - 1])
    return result


def where_stored(catalog: SessionCatalog, session_id: str, place: SessionPlace) -> SessionPlace:
    """The place of a stored session. One whose own directory is gone has moved to the one that the client names.

    Blocks. Raises Refused: unknown, or it belongs to another directory (A-45).
    """
    try:
        if catalog.has(place.cwd, session_id):
            return place
        owners = catalog.work_dirs(session_id)
    except InvalidSessionId as error:
        raise invalid_params(f"sessionId: {error}") from None
    if not owners:
        raise session_unknown(session_id)
    gone = next((path for path in owners if path is not None and not os.path.isdir(path)), None)
    if gone is None:
        raise invalid_params("session belongs to another directory", cwd=place.cwd)
    return replace(place, stored_in=gone)


def _order(one: SessionSummary) -> tuple[float, str]:
    return -one.updated_at, one.id


def _info(one: SessionSummary) -> JsonObject:
    updated = datetime.fromtimestamp(one.updated_at, UTC).isoformat(timespec="seconds")
    return {"sessionId": one.id, "cwd": one.work_dir, "title": one.title, "updatedAt": updated}


def _cursor(last: SessionSummary) -> str:
    return base64.urlsafe_b64encode(json.dumps(_order(last)).encode()).decode()


def _position(cursor: object) -> tuple[float, str]:
    try:
        position: Any = json.loads(base64.urlsafe_b64decode(str(cursor).encode("ascii", "strict")))
        time, session_id = cast("Sequence[Any]", position)
        return float(time), str(session_id)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise invalid_params("cursor: it does not come from this listing") from None
