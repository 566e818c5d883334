"""JSON Schema checks (draft 2020-12) with the `jsonschema` library, imported when the first schema comes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from kimi.application.envelope import encode_json
from kimi.domain.message import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema.exceptions import ValidationError

MAX_TEXT = 2_000
MAX_VALUE = 200


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def check_schema(schema: JsonObject) -> str | None:
    """The first line of the validator's text when `schema` breaks the meta-schema, else None (wire spec 5.1)."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return str(error).partition("\n")[0].strip() or "invalid schema"
    return None


def check_arguments(schema: JsonObject, value: Any) -> str | None:
    """What is wrong with `value`: its JSON path, the error, and the value cut short; None when nothing is."""
    from referencing.exceptions import Unresolvable

    try:
        error = next(_validator(encode_json(schema)).iter_errors(value), None)
    except Unresolvable as missing:
        return f"the schema refers to {missing.ref}, which is not in it"[:MAX_TEXT]
    except RecursionError:  # one that refers to itself follows the arguments to any depth
        return "the arguments, or what their schema refers to, are nested too deeply to be checked"
    if error is None:
        return None
    shown = encode_json(error.instance).decode()
    if len(shown) > MAX_VALUE:
        shown = shown[:MAX_VALUE] + "..."
    return f"{error.json_path}: {error.message[: MAX_VALUE * 2]} (value: {shown})"[:MAX_TEXT]


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> _Validator:
    from jsonschema import Draft202012Validator
    from pydantic_core import from_json
    from referencing import Registry

    nothing = Registry[Any]()  # by itself the library would fetch what a foreign schema refers to
    return cast("_Validator", Draft202012Validator(from_json(schema), registry=nothing))
