"""JSON Schema checks (draft 2020-12) with the `jsonschema` library, imported for the first schema."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsonschema.exceptions import ValidationError

    _KeywordCheck = Callable[[object, str, object, object], Iterator[ValidationError]]

MAX_TEXT = 2_000
MAX_VALUE = 200

_NESTED_REPETITION = re.compile(r"[*+?}]\)+[*+{]")
"""A pattern in which a repetition is repeated. Matching one against a few dozen characters may take years."""


class _SchemaValidator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def check_schema(schema: JsonObject) -> str | None:
    """Return the first line of the validator's text if `schema` breaks the meta-schema, else None (wire spec 5.1).

    Patterns are not checked: they are those of JavaScript, and Python does not know all of them.
    """
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema), format_checker=FormatChecker(()))
    except SchemaError as error:
        return str(error).partition("\n")[0].strip() or "invalid schema"
    return None


def check_arguments(schema: JsonObject, value: Any) -> str | None:
    """Return what is wrong with `value`: its JSON path, the error and the value cut short; None if it is valid.

    The tool itself must judge patterns that Python does not know or might try for ever.
    """
    from referencing.exceptions import Unresolvable

    try:
        error = next(_make_validator(encode_json(schema)).iter_errors(value), None)
    except Unresolvable as missing:
        return f"the schema refers to {missing.ref}, which is not in it"[:MAX_TEXT]
    except re.error:
        return None
    except RecursionError:  # a schema that refers to itself follows the arguments to any depth
        return "the arguments, or what their schema refers to, are nested too deeply to be checked"
    if error is None:
        return None
    shown = encode_json(error.instance).decode()
    if len(shown) > MAX_VALUE:
        shown = shown[:MAX_VALUE] + "..."
    return f"{error.json_path}: {error.message[: MAX_VALUE * 2]} (value: {shown})"[:MAX_TEXT]


@lru_cache(maxsize=256)
def _make_validator(schema: bytes) -> _SchemaValidator:
    from jsonschema import Draft202012Validator, validators
    from pydantic_core import from_json
    from referencing import Registry

    matches: _KeywordCheck = cast("dict[str, Any]", Draft202012Validator.VALIDATORS)["pattern"]

    def pattern(validator: object, wanted: str, value: object, part: object) -> Iterator[ValidationError]:
        if not _NESTED_REPETITION.search(wanted):
            with suppress(re.error):
                yield from matches(validator, wanted, value, part)

    nothing = Registry[Any]()  # without it the library would fetch what a foreign schema refers to
    extended = cast("Any", validators).extend(Draft202012Validator, {"pattern": pattern})
    return cast("_SchemaValidator", extended(from_json(schema), registry=nothing))
