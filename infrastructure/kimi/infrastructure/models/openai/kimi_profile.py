"""How `kimi` (Moonshot's chat completions) differs from the common protocol (runtime spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.openai.chat import ChatRequestContext, ProviderProfile
from kimi.infrastructure.models.thinking import thinks

Schema: TypeAlias = Mapping[str, Any]

_HEADROOM = 1024
_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref"})
_SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPPING_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMA_KEYWORDS = ("items", "additionalProperties")
_KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset(
        {
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        }
    ),
    "array": frozenset({"items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
_TYPE_NAMES: dict[object, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    dict: "object",
    type(None): "null",
}


def make_kimi_profile() -> ProviderProfile:
    """Return the profile of `kimi`."""
    return ProviderProfile(build_fields=build_kimi_fields, adapt_schema=add_property_types)


def build_kimi_fields(context: ChatRequestContext) -> Json:
    """Return the fields that only this provider knows, without those that are not set."""
    settings = context.settings
    fields: Json = {
        "prompt_cache_key": context.session_id or None,
        "max_completion_tokens": compute_completion_limit(settings, context.tokens),
        "thinking": _build_thinking(settings),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
    }
    return {key: value for key, value in fields.items() if value is not None}


def compute_completion_limit(settings: ModelSettings, tokens: int) -> int | None:
    """Return the rest of the window after `tokens` and some headroom, at most the cap; None when switched off."""
    cap = settings.max_completion_tokens
    if cap is not None and cap <= 0:
        return None
    size = settings.max_context_size
    return max(1, min(size if cap is None else cap, size - (tokens + _HEADROOM)))


def _build_thinking(settings: ModelSettings) -> Json | None:
    """Return the `thinking` field, or None for a model that cannot think (R-72).

    The field says `disabled` when the user switched thinking off, even if the model is not known to think.
    """
    if thinks(settings):
        keep = {"keep": settings.thinking_keep} if settings.thinking_keep else {}
        return {"type": "enabled", **keep}
    if settings.thinking is False or "thinking" in settings.capabilities:
        return {"type": "disabled"}
    return None


def add_property_types(schema: Schema) -> Schema:
    """Return a copy of a tool's schema in which every property has a `type`, as the API requires (tools spec 1.1)."""
    return {key: _add_types_below(key, value) for key, value in schema.items()}


def _add_types_below(key: str, value: Any) -> Any:
    """Return the value of a keyword with types added to the schemas in it. Other values are returned unchanged."""
    named = as_object(value)
    if key in _SCHEMA_MAPPING_KEYWORDS and named is not None:
        return {name: _add_type(node) for name, node in named.items()}
    if key in (*_SCHEMA_LIST_KEYWORDS, *_SCHEMA_KEYWORDS) and isinstance(value, list):
        return [_add_type(node) for node in cast(list[object], value)]
    return _add_type(value) if key in _SCHEMA_KEYWORDS else value


def _add_type(node: object) -> object:
    schema = as_object(node)
    if schema is None:
        return node
    filled = dict(add_property_types(schema))
    if "type" not in filled and not _COMBINATORS & filled.keys():
        filled["type"] = _infer_type(filled)
    return filled


def _infer_type(schema: Schema) -> str:
    values: list[object] = [schema["const"]] if "const" in schema else list(schema.get("enum") or [])
    if values:
        return _find_common_type(values)
    keywords = schema.keys()
    return next((name for name, known in _KEYWORDS.items() if known & keywords), "string")


def _find_common_type(values: list[object]) -> str:
    names = {_TYPE_NAMES.get(type(value), "string") for value in values}
    if len(names) == 1:
        return names.pop()
    return "number" if names == {"integer", "number"} else "string"
