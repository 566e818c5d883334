"""The error answers of the agent (acp spec 5.1): one table, without tracebacks and paths."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any, Final

from kimi.domain.content.message import JsonObject
from kimi.domain.errors import (
    APIStatusError,
    AuthExpired,
    CapabilityMissing,
    ChatProviderError,
    InvalidSessionId,
    KimiError,
    ModelNotSet,
    SessionBusy,
    TooManySessions,
)
from kimi.interfaces.process.startup_errors import unwrap_single_cause
from kimi.interfaces.rpc.messages import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

logger = logging.getLogger(__name__)

AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002
REQUEST_CANCELLED: Final = -32800
NO_MODEL_DETAILS: Final = "No model is configured: run 'kimi setup' in a terminal, then open a new session."
"""What a client may show to a user without any model."""
_CAPABILITY_LABELS: Final = {"image_in": "image", "video_in": "video", "thinking": "thinking"}


class RpcError(Exception):
    """The error that answers a request; `data` is plain JSON or None."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def invalid_params(details: str, **more: Any) -> RpcError:
    """Return the error for invalid parameters; `details` is `<field>: <reason>` or a sentence."""
    return RpcError(INVALID_PARAMS, "Invalid params", {**more, "details": details})


def method_not_found(method: str) -> RpcError:
    """Return the error for a method that this agent does not have or did not advertise."""
    return RpcError(METHOD_NOT_FOUND, "Method not found", {"method": method})


def session_not_open(session_id: str) -> RpcError:
    """Return the error for a request that names a session that is not open."""
    return RpcError(INVALID_PARAMS, "Session not found", _session_data(session_id))


def session_unknown(session_id: str) -> RpcError:
    """Return the error for a session that is not stored."""
    return RpcError(RESOURCE_NOT_FOUND, "Resource not found: session", _session_data(session_id))


def _session_data(session_id: str) -> JsonObject:
    return {"sessionId": session_id, "session_id": "Session not found"}


def auth_required(methods: Sequence[JsonObject], **more: str) -> RpcError:
    """Return the error for missing credentials, with the methods by which the client gets them."""
    return RpcError(AUTH_REQUIRED, "Authentication required", {"authMethods": list(methods), **more})


def queue_full() -> RpcError:
    """Return the error for a prompt that finds the queue of its session full."""
    return RpcError(INVALID_REQUEST, "Too many prompts are waiting for this session.", {"reason": "queue_full"})


def nothing_to_replay() -> RpcError:
    """Return the error for a conversation that cannot be replayed.

    An empty success would look as if the conversation were lost (acp spec 4.6).
    """
    message = "Nothing of this session's record can be read, so it cannot be shown; resume it to go on without."
    return RpcError(INVALID_REQUEST, message, {"reason": "record_unreadable"})


def unsupported_content(missing: Sequence[str]) -> RpcError:
    """Return the error for content that the session's model does not accept; nothing was recorded."""
    types = [_CAPABILITY_LABELS.get(name, name) for name in missing]
    message = f"The current model does not accept {' and '.join(f'{name}s' for name in types)}."
    return RpcError(INVALID_PARAMS, message, {"kind": "unsupported_content", "types": types})


def to_rpc_error(error: Exception, methods: Sequence[JsonObject]) -> RpcError:
    """Return the answer to a request that failed with `error`. An unexpected error is logged under an id.

    What the user can change is no internal error: there are editors that hide the words of one, and go on as if a
    session had been opened.
    """
    match unwrap_single_cause(error):
        case RpcError() as error:
            return error
        case ModelNotSet() as error:
            return auth_required(methods, details=error.reason or NO_MODEL_DETAILS)
        case CapabilityMissing() as error:
            return unsupported_content(error.capabilities)
        case AuthExpired() as error:
            return auth_required(methods, error=str(error))
        case APIStatusError(status_code=401 | 403) as error:
            return auth_required(methods, error=str(error))
        case ChatProviderError() as error:
            return _provider_error(error)
        case SessionBusy() as error:
            return RpcError(INVALID_REQUEST, str(error), {"reason": "session_locked"})
        case TooManySessions() as error:
            return RpcError(INVALID_REQUEST, str(error), {"reason": "session_limit"})
        case InvalidSessionId() as error:
            return invalid_params(f"sessionId: {error}")
        case KimiError() as error:
            return RpcError(INTERNAL_ERROR, str(error), {"error": str(error)})
        case _:
            return log_internal_error(error)


def _provider_error(error: ChatProviderError) -> RpcError:
    data: dict[str, Any] = {"error": str(error), "kind": "provider_error", "retryable": error.transient}
    if isinstance(error, APIStatusError):
        data["status"] = error.status_code
    return RpcError(INTERNAL_ERROR, str(error), data)


def log_internal_error(error: BaseException) -> RpcError:
    """Log an internal error and return the answer, which holds the id of the log entry."""
    error_id = uuid.uuid4().hex[:12]
    logger.error("internal error %s", error_id, exc_info=error)
    return RpcError(INTERNAL_ERROR, "Internal error", {"errorId": error_id})
