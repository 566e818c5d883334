"""JSON Schema checks (draft 2020-12) with the `jsonschema` library, imported for the first schema.

The schemas are those of clients and servers: each has limits, and each check has a limit of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import JsonObject

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_TEXT = 2_000
MAX_VALUE = 200

MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_CHARS = 512 * 1024
MAX_REFERENCES = 1_000
"""What one schema may have: levels of nesting, values and names, characters of text, references."""

SCHEMA_STEPS = 150_000
"""The steps in which a schema is checked against the meta-schema. A step takes about two microseconds."""

BASE_STEPS = 10_000
STEPS_PER_NODE = 12
MAX_STEPS = 1_000_000
"""The steps in which arguments are checked: the base, some for each value in them, up to the maximum."""

NODES_PER_STEP = 8
"""The values of a schema that the library looks at in a step when it searches a name in it."""

TOO_MUCH_WORK = "checking them against the schema takes too many steps and was given up; simpler arguments may pass"
TOO_DEEP = "the arguments, or what their schema refers to, are nested too deeply to be checked"


class _SchemaValidator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def check_schema(schema: JsonObject) -> str | None:
    """Return why `schema` cannot be used, else None (wire spec 5.1).

    That is the limit that it exceeds, or the first line of the validator's text if it breaks the meta-schema. Patterns
    are not checked: they are those of JavaScript, and the engine does not know all of them.
    """
    if (excess := _find_excess(schema)) is not None:
        return excess
    from kimi.infrastructure.schema_keywords import TooMuchWork, limit_steps

    try:
        with limit_steps(SCHEMA_STEPS, 1):
            error = next(_make_meta_validator().iter_errors(schema), None)
    except TooMuchWork:
        return "the schema takes too many steps to be checked"
    if error is not None:
        return error.message.partition("\n")[0].strip()[:MAX_TEXT] or "invalid schema"
    # A schema whose references double the work with each level, or have no end, shows it without any argument.
    if check_arguments(schema, {}) in (TOO_MUCH_WORK, TOO_DEEP):
        return "the schema refers to itself without end, or checking against it takes too many steps"
    return None


def check_arguments(schema: JsonObject, value: Any) -> str | None:
    """Return what is wrong with `value`: its JSON path, the error and the value cut short; None if it is valid.

    A check that takes too many steps is given up, and the arguments with it. The tool itself must judge patterns that
    the engine does not know.
    """
    from referencing.exceptions import Unresolvable

    from kimi.infrastructure.schema_keywords import TooMuchWork, count_nodes, limit_steps

    steps = min(MAX_STEPS, BASE_STEPS + STEPS_PER_NODE * count_nodes(value, MAX_STEPS))
    try:
        with limit_steps(steps, count_nodes(schema) // NODES_PER_STEP):
            error = next(_make_validator(encode_json(schema)).iter_errors(value), None)
    except Unresolvable as missing:
        return f"the schema refers to {missing.ref}, which is not in it"[:MAX_TEXT]
    except TooMuchWork:
        return TOO_MUCH_WORK
    except RecursionError:  # a schema that refers to itself follows the arguments to any depth
        return TOO_DEEP
    if error is None:
        return None
    shown = encode_json(error.instance).decode()
    if len(shown) > MAX_VALUE:
        shown = shown[:MAX_VALUE] + "..."
    return f"{error.json_path}: {error.message[: MAX_VALUE * 2]} (value: {shown})"[:MAX_TEXT]


def _find_excess(schema: JsonObject) -> str | None:
    """Return the limit that the schema exceeds, else None. Needs no stack, however deep the schema is."""
    nodes = chars = references = 0
    pending: list[tuple[object, int]] = [(dict(schema), 1)]
    while pending:
        part, depth = pending.pop()
        nodes += 1
        if isinstance(part, dict):
            members = cast("dict[str, object]", part)
            nodes += len(members)
            chars += sum(map(len, members))
            references += ("$ref" in members) + ("$dynamicRef" in members)
            pending.extend((member, depth + 1) for member in members.values())
        elif isinstance(part, list):
            pending.extend((item, depth + 1) for item in cast("list[object]", part))
        elif isinstance(part, str):
            chars += len(part)
        if depth > MAX_DEPTH:
            return f"the schema is nested more than {MAX_DEPTH} levels deep"
        if nodes > MAX_NODES or chars > MAX_CHARS:
            return f"the schema is larger than {MAX_NODES} values or {MAX_CHARS} characters"
        if references > MAX_REFERENCES:
            return f"the schema has more than {MAX_REFERENCES} references"
    return None


@lru_cache(maxsize=1)
def _make_meta_validator() -> _SchemaValidator:
    from kimi.infrastructure.schema_keywords import load_validator_class

    made = load_validator_class()
    return cast("_SchemaValidator", made(made.META_SCHEMA))


@lru_cache(maxsize=256)
def _make_validator(schema: bytes) -> _SchemaValidator:
    from pydantic_core import from_json
    from referencing import Registry

    from kimi.infrastructure.schema_keywords import load_validator_class

    nothing = Registry[Any]()  # without it the library would fetch what a foreign schema refers to
    return cast("_SchemaValidator", load_validator_class()(from_json(schema), registry=nothing))
