"""The JSON edge: a parsed value as an object, if it is one."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

JsonDict: TypeAlias = dict[str, Any]


def as_object(value: object) -> JsonDict | None:
    """`value` if it is a JSON object (its keys are strings then), else None."""
    return cast(JsonDict, value) if isinstance(value, dict) else None
