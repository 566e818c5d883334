"""Why a request is refused: a code for programs, a sentence for people, the status of HTTP, the code of a close."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from aiohttp import web

from kimi.domain.errors import (
    InvalidSessionId,
    KimiError,
    SessionBusy,
    StateError,
    TooManySessions,
    UnknownSession,
)
from kimi.interfaces.web.sessions.directories import ForbiddenDirectory

logger = logging.getLogger(__name__)

RefusalCode: TypeAlias = Literal[
    "unauthorized", "forbidden", "unknown", "locked", "busy", "invalid", "too_many", "failed"
]

_STATUSES: Final[Mapping[RefusalCode, int]] = {
    "unauthorized": 401, "forbidden": 403, "unknown": 404, "locked": 409, "busy": 409, "invalid": 400, "too_many": 503,
    "failed": 500,
}  # fmt: skip
_CLOSE_CODES: Final[Mapping[RefusalCode, int]] = {
    "forbidden": 4403, "unknown": 4404, "invalid": 4404, "locked": 4409, "too_many": 4503
}  # fmt: skip

_CODES: Final[tuple[tuple[type[Exception], RefusalCode], ...]] = (
    (ForbiddenDirectory, "forbidden"),
    (UnknownSession, "unknown"),
    (InvalidSessionId, "unknown"),
    (SessionBusy, "locked"),
    (TooManySessions, "too_many"),
    (StateError, "busy"),
)
"""Error classes and their codes; the first match counts."""


@dataclass
class Refusal(Exception):
    """A request that is not served; `message` is a sentence for the user."""

    code: RefusalCode
    message: str
    status: int = 0

    def __post_init__(self) -> None:
        self.status = self.status or _STATUSES[self.code]

    @property
    def close_code(self) -> int:
        """The code with which a WebSocket is closed for it."""
        return _CLOSE_CODES.get(self.code, 4500)

    @property
    def error(self) -> dict[str, str]:
        """The error as clients get it."""
        return {"code": self.code, "message": self.message}

    def build_response(self) -> web.Response:
        """Return the answer of HTTP."""
        response = web.json_response({"error": self.error}, status=self.status)
        if self.code in ("unauthorized", "forbidden"):
            response.force_close()  # who may not be here must not keep connections
        return response


def explain(error: Exception) -> Refusal:
    """Return why a request failed that raised this error."""
    if isinstance(error, Refusal):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Refusal(code, str(error))
    if isinstance(error, KimiError):
        return Refusal("failed", str(error))
    logger.error("a request failed", exc_info=error)
    return Refusal("failed", "Something went wrong here; the log of kimi says what.")
