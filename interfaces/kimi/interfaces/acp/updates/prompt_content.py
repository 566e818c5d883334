"""Parse the content blocks of a prompt to user input, and render user input as blocks for a replay (acp spec 3.11)."""

from __future__ import annotations

import binascii
import re
from html import escape, unescape
from typing import Any, Final, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl, TextPart, UserInput, as_parts
from kimi.domain.tools.tool import escape_host_tags
from kimi.interfaces.acp.updates.result_content import JsonDict, message_block

MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
"""The maximum size of an image, decoded."""

_LINK_PATTERN = re.compile(r'<resource_link uri="([^"]*)" name="([^"]*)" />')
_RESOURCE_PATTERN = re.compile(r'<resource uri="([^"]*)">\n(.*)\n</resource>', re.DOTALL)
_CLOSING_TAG = re.compile(r"</(?=resource\s*>)", re.IGNORECASE)
_ESCAPED_CLOSING_TAG = re.compile(r"&lt;/(?=resource\s*>)", re.IGNORECASE)
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")


class InvalidPrompt(ValueError):
    """A prompt that cannot be accepted; the text names the block and what is wrong with it."""


def parse_prompt_blocks(blocks: object) -> UserInput:
    """Return the parts of a prompt, one for each block, in order.

    Raises InvalidPrompt when the prompt is empty, or a block has a wrong shape or cannot be sent to any model.
    """
    if not isinstance(blocks, list) or not blocks:
        raise InvalidPrompt("prompt: must be a list with at least one content block")
    parts = [_parse_block(block, f"prompt[{index}]") for index, block in enumerate(cast("list[object]", blocks))]
    if not any(not isinstance(part, TextPart) or part.text.strip() for part in parts):
        raise InvalidPrompt("prompt: holds no content")
    return tuple(parts)


def _parse_block(block: object, field_path: str) -> ContentPart:
    source = _require_object(block, field_path)
    match source.get("type"):
        case "text":
            return TextPart(_require_text(source, "text", field_path))
        case "image":
            return _parse_image(
                _require_text(source, "mimeType", field_path), _require_text(source, "data", field_path), field_path
            )
        case "resource_link":
            uri, name = (escape(_require_text(source, key, field_path)) for key in ("uri", "name"))
            return TextPart(f'<resource_link uri="{uri}" name="{name}" />')
        case "resource":
            return _parse_resource(
                _require_object(source.get("resource"), f"{field_path}.resource"), f"{field_path}.resource"
            )
        case "audio":
            raise InvalidPrompt(f"{field_path}: audio is not supported")
        case kind:
            raise InvalidPrompt(f"{field_path}: unknown content block type {str(kind)[:40]!r}")


def _parse_resource(resource: JsonObject, field_path: str) -> ContentPart:
    uri = escape(_require_text(resource, "uri", field_path))
    if "text" in resource:
        text = _CLOSING_TAG.sub("&lt;/", escape_host_tags(_require_text(resource, "text", field_path)))
        return TextPart(f'<resource uri="{uri}">\n{text}\n</resource>')
    data = _require_text(resource, "blob", field_path)
    mime = resource.get("mimeType")
    mime = mime if isinstance(mime, str) and mime else "application/octet-stream"
    if mime.startswith("image/"):
        return _parse_image(mime, data, field_path)
    size = len(_decode_base64(data, field_path))
    return TextPart(f'<resource uri="{uri}" type="{escape(mime)}" size="{size}" content="binary, not included" />')


def _parse_image(mime: str, data: str, field_path: str) -> ContentPart:
    if not re.fullmatch(r"image/[A-Za-z0-9.+-]+", mime):
        raise InvalidPrompt(f"{field_path}.mimeType: {mime[:40]!r} is no image type")
    if len(_decode_base64(data, field_path)) > MAX_IMAGE_BYTES:
        raise InvalidPrompt(f"{field_path}.data: the image is larger than 20 MB")
    return ImagePart(MediaUrl(f"data:{mime};base64,{data}"))


def _decode_base64(data: str, field_path: str) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        raise InvalidPrompt(f"{field_path}: the data is not base64") from None


def _require_object(value: object, field_path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise InvalidPrompt(f"{field_path}: must be an object")
    return cast("dict[str, Any]", value)


def _require_text(source: JsonObject, key: str, field_path: str) -> str:
    value = source.get(key)
    if not isinstance(value, str):
        raise InvalidPrompt(f"{field_path}.{key}: must be a string")
    try:
        value.encode()  # a hundred times as fast as a search for lone surrogates, which are rare
    except UnicodeEncodeError:
        return _LONE_SURROGATES.sub("\ufffd", value)
    return value


def render_user_input(prompt: UserInput) -> list[JsonDict]:
    """Return user input as content blocks; text that `parse_prompt_blocks` made becomes a link or resource again."""
    blocks = [_render_part(part) for part in as_parts(prompt)]
    return [block for block in blocks if block is not None]


def _render_part(part: ContentPart) -> JsonDict | None:
    if not isinstance(part, TextPart):
        return message_block(part)
    if link := _LINK_PATTERN.fullmatch(part.text):
        return {"type": "resource_link", "uri": unescape(link.group(1)), "name": unescape(link.group(2))}
    if found := _RESOURCE_PATTERN.fullmatch(part.text):
        text = _ESCAPED_CLOSING_TAG.sub("</", found.group(2))
        return {"type": "resource", "resource": {"uri": unescape(found.group(1)), "text": text}}
    return message_block(part)
