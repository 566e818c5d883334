"""Errors in a provider's response: error bodies, errors inside a stream, malformed events and empty answers.

The message repeats the provider's own text; its codes decide whether a retry makes sense (runtime spec 3.7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import APIEmptyResponseError, APIStatusError, ChatProviderError
from kimi.infrastructure.models.gemini.errors import is_daily_quota_exceeded, parse_retry_delay
from kimi.infrastructure.models.json_object import JsonDict, as_object

_MAX_EXCERPT_CHARS = 200
_JSON_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)", re.DOTALL)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]..", re.DOTALL)
_STATUS = re.compile("[45][0-9]{2}")
_UNPAID_CODES = frozenset(
    {
        "insufficient_quota",
        "exceeded_current_quota_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
    }
)
"""Error codes and types that only a payment resolves, whatever the HTTP status is."""

SHAPE_ERRORS = (AttributeError, TypeError, IndexError, KeyError, ValueError, OverflowError)
"""The exceptions that reading a malformed event raises."""


def parse_event_object(payload: bytes) -> JsonDict:
    """Parse the payload of an event as a JSON object.

    Raises:
        ChatProviderError: the payload is not a JSON object.
    """
    try:
        event = as_object(from_json(payload))
    except ValueError:
        event = _parse_replacing_surrogates(payload)
    if event is None:
        raise ChatProviderError(f"The provider sent an event that is not a JSON object: {_format_excerpt(payload)}")
    return event


def _parse_replacing_surrogates(payload: bytes) -> JsonDict | None:
    """Parse a payload whose only mistake is a lone surrogate; return None otherwise.

    Servers that cut text in UTF-16 units send the two halves of a character in two events.
    """
    whole = _JSON_ESCAPE.sub(lambda found: rb"\ufffd" if _SURROGATE_ESCAPE.fullmatch(found[0]) else found[0], payload)
    try:
        return as_object(from_json(whole)) if whole != payload else None
    except ValueError:
        return None


def read_event(payload: bytes, handle_event: Callable[[JsonDict], Sequence[StreamPart]]) -> Sequence[StreamPart]:
    """Parse `payload` and return what `handle_event` makes of it.

    Raises:
        ChatProviderError: the payload is not a JSON object or is malformed, or `handle_event` raised it.
    """
    event = parse_event_object(payload)
    try:
        return handle_event(event)
    except SHAPE_ERRORS as error:
        raise ChatProviderError(f"The provider sent an event of an unknown form: {_format_excerpt(payload)}") from error


def require_text(value: object) -> str:
    """Return the value of a field that must be text. Raises TypeError when it is not."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def text_or_none(value: object) -> str | None:
    """Return the value of an optional field, or None when it is not text or is empty."""
    return value if isinstance(value, str) and value else None


def make_status_error(status: int, text: str, body: object, retry_after: float | None = None) -> APIStatusError:
    """Return the error for an HTTP status. It is final by its status, or when `body` says that a quota is used up."""
    wait = parse_retry_delay(body) if retry_after is None else retry_after
    final = is_unpaid(body) or is_daily_quota_exceeded(body)
    return APIStatusError(status, f"HTTP {status}: {text}", retry_after=wait, final=final)


def is_unpaid(body: object) -> bool:
    """Whether an error body says that the account must be paid first."""
    fields = as_object((as_object(body) or {}).get("error")) or {}
    return not _UNPAID_CODES.isdisjoint(str(fields.get(key)) for key in ("code", "type"))


def make_reported_error(body: Mapping[str, Any]) -> ChatProviderError:
    """Return the exception for an error object inside a stream, with a status if the object names one."""
    fields = as_object(body.get("error")) or {}
    text = find_error_text(body) or "The provider reported an error without a text."
    for status in (fields.get("code"), fields.get("status"), fields.get("status_code"), body.get("code")):
        if _STATUS.fullmatch(str(status)):
            return make_status_error(int(str(status)), text, body)
    return ChatProviderError(text)


def find_error_text(body: object) -> str | None:
    """Return the provider's own text in an error body: `error.message`, `error`, `message` or `detail`."""
    fields = as_object(body) or {}
    error = fields.get("error")
    if (nested := as_object(error)) is not None:
        error = nested.get("message") or nested.get("type")
    for text in (error, fields.get("message"), fields.get("detail")):
        if isinstance(text, str) and text.strip():
            return text.strip()
    return None


def make_empty_response_error(*, has_thinking: bool) -> APIEmptyResponseError:
    """Return the exception for an answer without visible content."""
    if has_thinking:
        return APIEmptyResponseError("The model only thought and then gave neither text nor a tool call.")
    return APIEmptyResponseError("The model gave an empty answer: neither text nor a tool call.")


def _format_excerpt(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    return text if len(text) <= _MAX_EXCERPT_CHARS else text[:_MAX_EXCERPT_CHARS] + "…"
