"""Regular expressions that others wrote, in an engine whose time grows with the text only: RE2.

Python's `re` tries one way after the other: an expression of ten characters can hold the process for years, and nothing
can interrupt it. RE2 knows neither look-around nor references to groups, because they have no such bound. The library
is imported for the first expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Protocol, cast

from kimi.domain.hook import SearchOutcome

MAX_MEMORY = 1024 * 1024
"""The memory of one expression, in bytes; one that needs more is refused."""

MAX_EXPRESSION_CHARS = 10_000


class UnknownExpression(ValueError):
    """The engine does not know the expression; the text says what it does not know."""


class LinearMatch(Protocol):
    """A place that matches."""

    def span(self) -> tuple[int, int]:
        """Return the first index and the one after the last."""
        ...


class LinearRegex(Protocol):
    """A compiled expression. Text may be `str`, or bytes of UTF-8."""

    @property
    def programsize(self) -> int:
        """The number of its instructions: one character costs at most so many steps."""
        ...

    def search(self, text: str | bytes, pos: int | None = None) -> LinearMatch | None:
        """Return the first match from `pos` on."""
        ...


class _Engine(Protocol):
    error: type[Exception]

    def Options(self) -> Any: ...

    def compile(self, pattern: str, options: Any) -> LinearRegex: ...


@lru_cache(maxsize=256)
def compile_linear(expression: str, *, ignore_case: bool = False) -> LinearRegex:
    """Compile `expression`. Raises UnknownExpression."""
    import re2  # pyright: ignore[reportMissingTypeStubs]

    engine = cast("_Engine", re2)
    options = engine.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.case_sensitive = not ignore_case
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise UnknownExpression(f"longer than {MAX_EXPRESSION_CHARS} characters")
    try:
        return engine.compile(expression, options)
    except UnicodeEncodeError as error:
        raise UnknownExpression("it holds half of a surrogate pair") from error
    except engine.error as error:
        raise UnknownExpression(_describe(error)) from error


def search_expression(expression: str, text: str) -> SearchOutcome:
    """See `SearchExpression`. What only Python knows, look-around for one, is unbounded."""
    try:
        regex = compile_linear(expression)
    except UnknownExpression:
        return "unbounded" if _is_known_to_python(expression) else "invalid"
    return "found" if regex.search(text.encode("utf-8", "replace")) else "absent"


def find_spans(regex: LinearRegex, text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the places in `text` that match, from left to right. After an empty one the search goes on a byte later."""
    at = 0
    while at <= len(text) and (found := regex.search(text, at)) is not None:
        start, end = found.span()
        yield start, end
        at = end + (end == start)


def _is_known_to_python(expression: str) -> bool:
    if len(expression) > MAX_EXPRESSION_CHARS:
        return True  # even to compile a long one takes its time
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _describe(error: Exception) -> str:
    """Return the engine's text, which comes as bytes."""
    told: object = error.args[0] if error.args else ""
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
