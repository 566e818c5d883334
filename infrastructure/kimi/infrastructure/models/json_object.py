"""The JSON edge: the check that a parsed value is an object."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

JsonDict: TypeAlias = dict[str, Any]


def as_object(value: object) -> JsonDict | None:
    """Return `value` if it is a JSON object, whose keys are strings, else None."""
    return cast(JsonDict, value) if isinstance(value, dict) else None
