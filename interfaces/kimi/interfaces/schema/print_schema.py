"""What `kimi schema` prints."""

from __future__ import annotations

import json
from typing import Final, Literal, TypeAlias, get_args

from kimi.domain.errors import UsageError
from kimi.interfaces.schema import versions
from kimi.interfaces.schema.messages import build_messages_schema
from kimi.interfaces.schema.openrpc import build_openrpc
from kimi.interfaces.schema.typescript import build_typescript

Printed: TypeAlias = Literal["messages", "openrpc", "typescript"]

KINDS: Final[tuple[Printed, ...]] = get_args(Printed)


def format_schema(kind: str, protocol_version: str) -> str:
    """Return the text of `kind` for a protocol version. Raises UsageError for another kind or version."""
    version = versions.parse_protocol_version(protocol_version)
    if version is None:
        raise UsageError(
            f"There is no protocol version {protocol_version!r}; give one from 1.0 to 1.{versions.NEWEST}."
        )
    match kind:
        case "messages":
            return format_json(build_messages_schema(version))
        case "openrpc":
            return format_json(build_openrpc(version))
        case "typescript":
            return build_typescript(version)
        case _:
            raise UsageError(f"There is no schema {kind!r}; give one of {', '.join(KINDS)}.")


def format_json(value: object) -> str:
    """Return the value as readable JSON, with a line end."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
