"""The keywords of JSON Schema as the library checks them, with a limit of steps and patterns in linear time.

The library tries patterns with Python's `re`, compares the items of a list pairwise, and follows references as often as
a schema says: a kilobyte of schema can keep it busy for ever. So each keyword spends steps before it works.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from anyio import from_thread

from kimi.infrastructure.linear_regex import LinearRegex, UnknownExpression, compile_linear

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

KeywordCheck: TypeAlias = "Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]"
"""Checks one keyword: the validator, what the schema wants, the value, the schema around the keyword."""

MAX_PROGRAM = 5_000
"""The instructions of a pattern; a longer one is left to the tool like one that the engine does not know."""

REFERENCE_STEPS = 10
_CHARS_PER_STEP = 50
_INSTRUCTIONS_PER_STEP = 1_000
_ENTRIES_PER_STEP = 8
_STEPS_TO_PAUSE = 200
_EACH_ELEMENT = frozenset({"items", "contains", "propertyNames", "additionalProperties"})
_EACH_BRANCH = frozenset({"allOf", "anyOf", "oneOf", "dependentSchemas", "prefixItems"})
_JAVASCRIPT_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


class TooMuchWork(Exception):
    """The steps of a check are used up."""


class _StepCounter:
    """The steps that a check has left, and what a reference to a name in the schema costs."""

    def __init__(self, steps: int, name_steps: int) -> None:
        self._left = steps
        self._next_pause = steps - _STEPS_TO_PAUSE
        self._in_worker = _is_worker_thread()
        self.name_steps = name_steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < self._next_pause:
            if self._left < 0:
                raise TooMuchWork
            self._next_pause = self._left - _STEPS_TO_PAUSE
            if self._in_worker:
                from_thread.check_cancelled()
                time.sleep(0)  # lets the event loop go on at once


def _is_worker_thread() -> bool:
    """Return whether this is a thread of an event loop that may have given up waiting for it."""
    try:
        from_thread.check_cancelled()
    except RuntimeError:
        return False
    return True


_counter: ContextVar[_StepCounter] = ContextVar("steps of a schema check")


@contextmanager
def limit_steps(steps: int, name_steps: int) -> Generator[None]:
    """Let the checks inside take `steps` steps. Raises TooMuchWork.

    `name_steps` is what following a reference costs that is no path: the library then looks at the whole schema.
    """
    token = _counter.set(_StepCounter(steps, name_steps))
    try:
        yield
    finally:
        _counter.reset(token)


@lru_cache(maxsize=1)
def load_validator_class() -> Any:
    """Return the library's class for draft 2020-12 with the keywords of this module. Use it inside `limit_steps`."""
    from jsonschema import Draft202012Validator, validators

    known = cast("Mapping[str, KeywordCheck]", cast("Any", Draft202012Validator).VALIDATORS)
    keywords = {**known, **_OWN_CHECKS}
    counted = {keyword: _count_steps(keyword, check) for keyword, check in keywords.items()}
    made = cast("Any", validators).extend(Draft202012Validator, counted)
    made.evolve = _evolve
    return made


def _evolve(validator: Any, **changes: Any) -> Any:
    """Return a validator of the same class: the library takes one of its own for a schema that names a draft."""
    kept = {"schema": validator.schema, "registry": validator._registry, "_resolver": validator._resolver}
    return type(validator)(**{**kept, **changes})


def count_nodes(value: object, limit: int = 10**9) -> int:
    """Return the number of values in `value`, itself and names included; stops beyond `limit`."""
    count, pending = 0, [value]
    while pending and count <= limit:
        part = pending.pop()
        count += 1
        if isinstance(part, dict):
            members = cast("dict[str, object]", part)
            count += len(members)
            pending.extend(members.values())
        elif isinstance(part, list):
            pending.extend(cast("list[object]", part))
    return count


def _count_steps(keyword: str, check: KeywordCheck) -> KeywordCheck:
    def run(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
        spend = _counter.get().spend
        spend(_estimate_steps(keyword, wanted, value))
        for error in check(validator, wanted, value, part) or ():
            spend(1 + len(error.message) // _CHARS_PER_STEP)  # it holds the whole value
            yield error

    return run


def _estimate_steps(keyword: str, wanted: Any, value: Any) -> int:
    steps = 1 + _measure_length(wanted) // _ENTRIES_PER_STEP
    if keyword in _EACH_ELEMENT:
        steps += _measure_length(value)
    elif keyword in _EACH_BRANCH:
        steps += _measure_length(wanted)
    elif keyword in ("$ref", "$dynamicRef"):
        steps += REFERENCE_STEPS if str(wanted).startswith("#/") or wanted == "#" else _counter.get().name_steps
    elif keyword in ("enum", "const") and isinstance(value, (dict, list)):
        steps += (_measure_length(wanted) if keyword == "enum" else 1) * count_nodes(cast("object", value))
    return steps


def _measure_length(value: Any) -> int:
    return len(cast("list[Any]", value)) if isinstance(value, (dict, list)) else 0


def _check_pattern(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and _is_match(wanted, value) is False:
        yield ValidationError(f"{value!r} does not match {wanted!r}")


def _check_pattern_properties(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, schema in wanted.items():
        for name, member in cast("dict[str, Any]", value).items():
            if _is_match(pattern, name):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _check_additional_properties(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, dict):
        return
    named, patterns = part.get("properties", {}), list(part.get("patternProperties", {}))
    extra = [
        name
        for name in cast("dict[str, Any]", value)
        if name not in named and all(_is_match(pattern, name) is False for pattern in patterns)
    ]
    if isinstance(wanted, dict):
        for name in extra:
            yield from validator.descend(value[name], wanted, path=name)
    elif not wanted and extra:
        shown = ", ".join(map(repr, sorted(extra)))
        one = len(extra) == 1
        if patterns:
            regexes = ", ".join(map(repr, sorted(patterns)))
            yield ValidationError(f"{shown} {'does' if one else 'do'} not match any of the regexes: {regexes}")
        else:
            verb = "was" if one else "were"
            yield ValidationError(f"Additional properties are not allowed ({shown} {verb} unexpected)")


def _check_unique_items(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not wanted or not isinstance(value, list):
        return
    items = cast("list[object]", value)
    _counter.get().spend(count_nodes(items))
    if len({_freeze(item) for item in items}) < len(items):
        yield ValidationError(f"{value!r} has non-unique elements")


def _freeze(value: object) -> Hashable:
    """Return a key that two values share exactly if JSON Schema takes them for equal: 1 is 1.0, but not true."""
    if isinstance(value, dict):
        return frozenset((name, _freeze(member)) for name, member in cast("dict[str, object]", value).items())
    if isinstance(value, list):
        return ("list", *map(_freeze, cast("list[object]", value)))
    if isinstance(value, bool):
        return ("bool", value)
    return cast("Hashable", value)


def _check_unevaluated_properties(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, dict):
        return
    members = cast("dict[str, Any]", value)
    known = set(_find_evaluated(validator, members, part, _list_evaluated_names))
    extra = [
        name
        for name in members
        if name not in known and not _is_valid(validator.descend(members[name], wanted, path=name, schema_path=name))
    ]
    if extra:
        shown, verb = ", ".join(map(repr, sorted(extra))), "was" if len(extra) == 1 else "were"
        yield ValidationError(f"Unevaluated properties are not allowed ({shown} {verb} unexpected)")


def _check_unevaluated_items(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, list):
        return
    items = cast("list[Any]", value)
    known = set(_find_evaluated(validator, items, part, _list_evaluated_indexes))
    extra = [
        item for at, item in enumerate(items) if at not in known and not _is_valid(validator.descend(item, wanted))
    ]
    if extra:
        shown, verb = ", ".join(map(repr, extra)), "was" if len(extra) == 1 else "were"
        yield ValidationError(f"Unevaluated items are not allowed ({shown} {verb} unexpected)")


_ListEvaluated: TypeAlias = Callable[[Any, Any, Any], "Iterator[Any]"]


def _find_evaluated(validator: Any, value: Any, schema: Any, list_own: _ListEvaluated) -> Iterator[Any]:
    """Yield the names or indexes that `schema` and its applicable parts look at."""
    if not isinstance(schema, dict):
        return
    _counter.get().spend(1 + len(value))
    members = cast("dict[str, Any]", schema)
    yield from list_own(validator, value, members)
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in members:
            _counter.get().spend(_estimate_steps(keyword, members[keyword], value))
            found = validator._resolver.lookup(members[keyword])
            inside = validator.evolve(schema=found.contents, _resolver=found.resolver)
            yield from _find_evaluated(inside, value, found.contents, list_own)
    for branch in _list_applied_branches(validator, value, members):
        yield from _find_evaluated(validator, value, branch, list_own)


def _list_applied_branches(validator: Any, value: Any, members: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in ("allOf", "oneOf", "anyOf"):
        for branch in members.get(keyword, ()):
            if _is_valid(validator.descend(value, branch)):
                yield branch
    for name, branch in members.get("dependentSchemas", {}).items():
        if isinstance(value, dict) and name in value:
            yield branch
    if "if" in members:
        holds = _is_valid(validator.descend(value, members["if"]))
        if holds:
            yield members["if"]
        yield members.get("then" if holds else "else", True)


def _list_evaluated_names(validator: Any, value: dict[str, Any], members: Mapping[str, Any]) -> Iterator[str]:
    yield from members.get("properties", {}).keys() & value.keys()
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in members:
            yield from (name for name in value if _is_valid(validator.descend(value[name], members[keyword])))
    for pattern in members.get("patternProperties", {}):
        yield from (name for name in value if _is_match(pattern, name) is not False)


def _list_evaluated_indexes(validator: Any, value: list[Any], members: Mapping[str, Any]) -> Iterator[int]:
    if "items" in members:
        yield from range(len(value))
    yield from range(len(members.get("prefixItems", ())))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in members:
            yield from (at for at, item in enumerate(value) if _is_valid(validator.descend(item, members[keyword])))


def _is_valid(errors: Iterator[ValidationError]) -> bool:
    return next(errors, None) is None


def _is_match(pattern: str, text: str) -> bool | None:
    """Return whether `pattern` is found in `text`; None for a pattern that the engine does not know."""
    regex = _compile_pattern(pattern)
    if regex is None:
        return None
    _counter.get().spend(1 + len(text) * regex.programsize // _INSTRUCTIONS_PER_STEP)
    return regex.search(text.encode("utf-8", "replace")) is not None


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> LinearRegex | None:
    try:
        regex = compile_linear(_JAVASCRIPT_ESCAPE.sub(_translate_escape, pattern))
    except UnknownExpression:
        return None
    return regex if regex.programsize <= MAX_PROGRAM else None


def _translate_escape(escape: re.Match[str]) -> str:
    return rf"\x{{{escape[1]}}}" if escape[1] else escape[0]


_OWN_CHECKS: dict[str, KeywordCheck] = {
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "uniqueItems": _check_unique_items,
    "unevaluatedProperties": _check_unevaluated_properties,
    "unevaluatedItems": _check_unevaluated_items,
}
