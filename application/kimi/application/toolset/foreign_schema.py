"""Schemas of tools that others provide: what a provider takes, and checking arguments without holding up the rest."""

from __future__ import annotations

from typing import Any, Final

from anyio import to_thread

from kimi.application.ports import CheckArguments
from kimi.domain.content.message import JsonObject

MAX_INLINE_CHARS: Final = 1024
"""The length of arguments, as text, that are checked at once; longer ones are checked in a thread."""

NO_OBJECT: Final = "the parameters are not the schema of an object"


def normalise_parameters(schema: JsonObject) -> JsonObject | None:
    """Return `schema` with the type object, which all providers demand; None if it is a schema of something else.

    The arguments of a call are always an object, so a type that is missing, or that allows other types as well, means
    the same.
    """
    kind: Any = schema.get("type", "object")
    if kind == "object":
        return schema if "type" in schema else {"type": "object", **schema}
    return {**schema, "type": "object"} if isinstance(kind, list) and "object" in kind else None


async def find_argument_fault(
    check: CheckArguments, schema: JsonObject, arguments: JsonObject, raw_arguments: str | None
) -> str | None:
    """Return what is wrong with the arguments, else None. A cancelled call leaves a long check to its own limit."""
    if len(raw_arguments or "") <= MAX_INLINE_CHARS:
        return check(schema, arguments)
    return await to_thread.run_sync(check, schema, arguments, abandon_on_cancel=True)
