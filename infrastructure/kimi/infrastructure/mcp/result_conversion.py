"""Converts what MCP servers describe and return (tools spec 4.6, 4.7). Loads the library's types."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Iterable
from typing import Final, cast

import mcp_types

from kimi.application.codec.envelope import encode_json
from kimi.application.ports import CheckSchema, SourceTool
from kimi.application.toolset.foreign_schema import NO_OBJECT, normalise_parameters
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, VideoPart
from kimi.domain.tools.tool import ToolReturnValue

logger = logging.getLogger(__name__)

MAX_SCHEMA_BYTES: Final = 128 * 1024
MAX_ALL_SCHEMA_BYTES: Final = 4 * 1024 * 1024
"""The limit of the schemas of one server. The model is sent all of them with each request."""

MAX_DESCRIPTION_CHARS: Final = 64 * 1024
MAX_NAME_CHARS: Final = 1000

_MIME_TYPE = re.compile(r"[a-zA-Z0-9.+-]+/[a-zA-Z0-9.+_-]+")


def select_usable_tools(server: str, tools: Iterable[mcp_types.Tool], check: CheckSchema) -> list[SourceTool]:
    """Return the tools that a model can be offered, the first one of each name.

    The faults of the others are logged.
    """
    found: dict[str, SourceTool] = {}
    room = MAX_ALL_SCHEMA_BYTES
    for tool in tools:
        schema = normalise_parameters(tool.input_schema)
        size = 0 if schema is None else len(encode_json(schema))
        fault = _find_size_fault(tool, size, room)
        if fault is None:
            fault = "it is there twice" if tool.name in found else _find_schema_fault(schema, check)
        if fault is not None or schema is None:
            logger.warning("the tool %.200r of the MCP server %s is left out: %s", tool.name, server, fault)
            continue
        room -= size
        hints = tool.annotations
        found[tool.name] = SourceTool(
            server=server,
            name=tool.name,
            description=(tool.description or "")[:MAX_DESCRIPTION_CHARS],
            parameters=schema,
            title=tool.title or (hints.title if hints else None),
            read_only=bool(hints and hints.read_only_hint),
        )
    return list(found.values())


def _find_size_fault(tool: mcp_types.Tool, size: int, room: int) -> str | None:
    if len(tool.name) > MAX_NAME_CHARS:
        return "its name is too long"
    if size > MAX_SCHEMA_BYTES:
        return "its schema is too large"
    return "the schemas of the server are too large together" if size > room else None


def _find_schema_fault(schema: JsonObject | None, check: CheckSchema) -> str | None:
    return NO_OBJECT if schema is None else check(schema) or _find_external_reference(schema)


def _find_external_reference(schema: object) -> str | None:
    """Return a fault if the schema refers to another document, which would not be fetched."""
    if isinstance(schema, dict):
        members = cast("dict[str, object]", schema)
        target = members.get("$ref")
        if isinstance(target, str) and not target.startswith("#"):
            return f"its schema refers to {target}"
        parts: Iterable[object] = members.values()
    elif isinstance(schema, list):
        parts = cast("list[object]", schema)
    else:
        return None
    return next((fault for part in parts if (fault := _find_external_reference(part))), None)


def convert_result(result: mcp_types.CallToolResult) -> ToolReturnValue:
    """Convert a whole result to parts; structured content is used only if there is nothing else."""
    parts = [_convert_block(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts.append(TextPart(encode_json(result.structured_content).decode("utf-8", "replace")))
    return ToolReturnValue(bool(result.is_error), tuple(parts), "")


def _convert_block(block: mcp_types.ContentBlock) -> ContentPart:
    match block:
        case mcp_types.TextContent():
            return TextPart(block.text)
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return _convert_media(block.mime_type, block.data) or _format_unsupported(block)
        case mcp_types.EmbeddedResource():
            return _convert_resource(block.resource)
        case mcp_types.ResourceLink():
            return _convert_link(block)
        case _:
            return _format_unsupported(cast("object", block))


def _convert_resource(resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> ContentPart:
    if isinstance(resource, mcp_types.TextResourceContents):
        return TextPart(f"{resource.uri}\n{resource.text}")
    text = f"[Unsupported content: resource {resource.uri} ({resource.mime_type or 'unknown type'})]"
    return _convert_media(resource.mime_type, resource.blob) or TextPart(text)


def _convert_link(link: mcp_types.ResourceLink) -> ContentPart:
    """Convert a link without passing on an address that the server chose: the provider of the model would fetch it."""
    head, _, data = str(link.uri).partition(",")
    if (
        head.startswith("data:")
        and head.endswith(";base64")
        and (part := _convert_media(link.mime_type, data)) is not None
    ):
        return part
    return TextPart(f"[resource: {link.uri} ({link.mime_type or 'unknown type'})]")


def _choose_media_part(mime_type: str | None) -> Callable[[MediaUrl], ContentPart] | None:
    kinds: dict[str, Callable[[MediaUrl], ContentPart]] = {
        "image": ImagePart,
        "audio": AudioPart,
        "video": VideoPart,
    }
    return kinds.get((mime_type or "").partition("/")[0].lower())


def _convert_media(mime_type: str | None, data: str) -> ContentPart | None:
    """Return the media part, or None for another type or broken data, which providers would refuse in every request."""
    plain, data = (mime_type or "").partition(";")[0].strip(), "".join(data.split())
    medium = _choose_media_part(plain)
    if medium is None or not _MIME_TYPE.fullmatch(plain):
        return None
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return None
    return medium(MediaUrl(f"data:{plain};base64,{data}"))


def _format_unsupported(block: object) -> TextPart:
    return TextPart(f"[Unsupported content: {getattr(block, 'type', type(block).__name__)}]")
