"""Masking of the secrets of an MCP server, for output that keeps names and harmless values (tools spec 4.5; R-48)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

IsReference: TypeAlias = Callable[[str], bool]
"""Whether a text only names a variable, like `${TOKEN}`, and so does not reveal its value."""

HIDDEN: Final = "***"

_SECRET_FREE_KEYS: Final = frozenset(
    {
        *("command", "args", "cwd", "url", "transport", "type", "timeout", "sse_read_timeout", "keep_alive"),
        *("description", "enabled", "disabled", "enabled_tools", "disabled_tools", "required", "connect_timeout_ms"),
        *("approval", "trust_annotations", "subagents"),
    }
)
"""Keys whose values hold no secrets, except for secrets that occur elsewhere in the entry, too."""


def mask_server_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without the secrets. The longest is masked first, because one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def encode_entry(entry: object, secrets: Iterable[str], is_reference: IsReference) -> str:
    """Return the entry of a server as JSON, with every value hidden that may be a secret."""
    shown = _hide_values(cast(dict[str, Any], entry), is_reference) if isinstance(entry, dict) else HIDDEN
    return mask_server_secrets(json.dumps(shown, indent=2, ensure_ascii=False), secrets)


def _hide_values(entry: Mapping[str, Any], is_reference: IsReference) -> dict[str, Any]:
    return {
        key: value if key in _SECRET_FREE_KEYS else _hide_value(value, is_reference) for key, value in entry.items()
    }


def _hide_value(value: Any, is_reference: IsReference) -> Any:
    """Hide a value, but keep names and references that only say where the secret is: `oauth`, `${VARIABLE}`."""
    if isinstance(value, dict):
        return {key: _hide_value(inner, is_reference) for key, inner in cast(dict[str, Any], value).items()}
    harmless = value == "oauth" or (isinstance(value, str) and is_reference(value))
    return value if harmless else HIDDEN
