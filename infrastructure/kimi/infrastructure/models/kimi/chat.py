"""What `kimi` (Moonshot's chat completions) wants beside the common protocol (runtime spec 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.headers import device_headers, is_vendor_host
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.openai.chat import Ask, Quirks
from kimi.infrastructure.models.thinking import thinks

Schema: TypeAlias = Mapping[str, Any]

_HEADROOM = 1024
_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref"})
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions")
_SINGLE = ("items", "additionalProperties")
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


def kimi_quirks(environ: Mapping[str, str], *, send_device: bool) -> Quirks:
    """The quirks of `kimi`; `send_device` allows the device headers for the vendor's own hosts (R-91)."""
    return Quirks(fields=kimi_fields, schema=typed_properties, headers=_vendor_headers(environ, send_device))


def kimi_fields(ask: Ask) -> Json:
    """The fields that only this provider knows; unset ones are left out."""
    settings = ask.settings
    fields: Json = {
        "prompt_cache_key": ask.session_id or None,
        "max_completion_tokens": max_completion_tokens(settings, ask.tokens),
        "thinking": _thinking(settings),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
    }
    return {key: value for key, value in fields.items() if value is not None}


def max_completion_tokens(settings: ModelSettings, tokens: int) -> int | None:
    """What is left of the window after `tokens` and some headroom, at most the cap; None when switched off."""
    cap = settings.max_completion_tokens
    if cap is not None and cap <= 0:
        return None
    size = settings.max_context_size
    return max(1, min(size if cap is None else cap, size - (tokens + _HEADROOM)))


def _thinking(settings: ModelSettings) -> Json | None:
    """Nothing for a model that cannot think, unless the user switched thinking off in so many words (R-72)."""
    if thinks(settings):
        keep = {"keep": settings.thinking_keep} if settings.thinking_keep else {}
        return {"type": "enabled", **keep}
    if settings.thinking is False or "thinking" in settings.capabilities:
        return {"type": "disabled"}
    return None


def _vendor_headers(environ: Mapping[str, str], send_device: bool) -> Callable[[str, str], Mapping[str, str]]:
    known: dict[str, str] = {}

    def headers(host: str, agent: str) -> Mapping[str, str]:
        if not (send_device and is_vendor_host(host)):
            return {}
        if not known:
            known.update(device_headers(agent.partition("/")[2].partition(" ")[0], environ))
        return known

    return headers


def typed_properties(schema: Schema) -> Schema:
    """A copy of a tool's schema in which every property has a `type` (tools spec 1.1); the API insists on it."""
    return {key: _typed_below(key, value) for key, value in schema.items()}


def _typed_below(key: str, value: Any) -> Any:
    """The value of a keyword with the schemas in it filled in; values that hold no schemas as they are."""
    named = as_object(value)
    if key in _MAPPINGS and named is not None:
        return {name: _typed(node) for name, node in named.items()}
    if key in (*_LISTS, *_SINGLE) and isinstance(value, list):
        return [_typed(node) for node in cast(list[object], value)]
    return _typed(value) if key in _SINGLE else value


def _typed(node: object) -> object:
    schema = as_object(node)
    if schema is None:
        return node
    filled = dict(typed_properties(schema))
    if "type" not in filled and not _COMBINATORS & filled.keys():
        filled["type"] = _inferred_type(filled)
    return filled


def _inferred_type(schema: Schema) -> str:
    values: list[object] = [schema["const"]] if "const" in schema else list(schema.get("enum") or [])
    if values:
        return _type_of(values)
    keywords = schema.keys()
    return next((name for name, known in _KEYWORDS.items() if known & keywords), "string")


def _type_of(values: list[object]) -> str:
    names = {_TYPE_NAMES.get(type(value), "string") for value in values}
    if len(names) == 1:
        return names.pop()
    return "number" if names == {"integer", "number"} else "string"
