"""Prompt blocks of a client to user input, and user input back to blocks for a replay (acp spec 3.11)."""

from __future__ import annotations

import binascii
import re
from html import escape, unescape
from typing import Any, Final, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl, TextPart, UserInput, as_parts
from kimi.interfaces.acp.updates.result_content import Json, chunk_block

MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
"""Of a picture, decoded."""

_LINK = re.compile(r'<resource_link uri="([^"]*)" name="([^"]*)" />')
_RESOURCE = re.compile(r'<resource uri="([^"]*)">\n(.*)\n</resource>', re.DOTALL)
_CLOSING = re.compile(r"</(?=resource\s*>)", re.IGNORECASE)
_CLOSED = re.compile(r"&lt;/(?=resource\s*>)", re.IGNORECASE)
_HALVES = re.compile(r"[\ud800-\udfff]")


class BadPrompt(ValueError):
    """A prompt that cannot be taken; the text says what is wrong with which block."""


def user_input(blocks: object) -> UserInput:
    """The parts of a prompt, one for each block, in order.

    Raises BadPrompt when there is nothing in the prompt, a block has another shape, or cannot be taken by any model.
    """
    if not isinstance(blocks, list) or not blocks:
        raise BadPrompt("prompt: must be a list with at least one content block")
    parts = [_part(block, f"prompt[{index}]") for index, block in enumerate(cast("list[object]", blocks))]
    if not any(not isinstance(part, TextPart) or part.text.strip() for part in parts):
        raise BadPrompt("prompt: holds no content")
    return tuple(parts)


def _part(block: object, place: str) -> ContentPart:
    source = _object(block, place)
    match source.get("type"):
        case "text":
            return TextPart(_text(source, "text", place))
        case "image":
            return _image(_text(source, "mimeType", place), _text(source, "data", place), place)
        case "resource_link":
            uri, name = (escape(_text(source, key, place)) for key in ("uri", "name"))
            return TextPart(f'<resource_link uri="{uri}" name="{name}" />')
        case "resource":
            return _resource(_object(source.get("resource"), f"{place}.resource"), f"{place}.resource")
        case "audio":
            raise BadPrompt(f"{place}: audio is not supported")
        case kind:
            raise BadPrompt(f"{place}: unknown content block type {str(kind)[:40]!r}")


def _resource(resource: JsonObject, place: str) -> ContentPart:
    uri = escape(_text(resource, "uri", place))
    if "text" in resource:
        text = _CLOSING.sub("&lt;/", _text(resource, "text", place))
        return TextPart(f'<resource uri="{uri}">\n{text}\n</resource>')
    data = _text(resource, "blob", place)
    mime = resource.get("mimeType")
    mime = mime if isinstance(mime, str) and mime else "application/octet-stream"
    if mime.startswith("image/"):
        return _image(mime, data, place)
    size = len(_decoded(data, place))
    return TextPart(f'<resource uri="{uri}" type="{escape(mime)}" size="{size}" content="binary, not included" />')


def _image(mime: str, data: str, place: str) -> ContentPart:
    if not re.fullmatch(r"image/[A-Za-z0-9.+-]+", mime):
        raise BadPrompt(f"{place}.mimeType: {mime[:40]!r} is no image type")
    if len(_decoded(data, place)) > MAX_IMAGE_BYTES:
        raise BadPrompt(f"{place}.data: the image is larger than 20 MB")
    return ImagePart(MediaUrl(f"data:{mime};base64,{data}"))


def _decoded(data: str, place: str) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        raise BadPrompt(f"{place}: the data is not base64") from None


def _object(value: object, place: str) -> JsonObject:
    if not isinstance(value, dict):
        raise BadPrompt(f"{place}: must be an object")
    return cast("dict[str, Any]", value)


def _text(source: JsonObject, key: str, place: str) -> str:
    value = source.get(key)
    if not isinstance(value, str):
        raise BadPrompt(f"{place}.{key}: must be a string")
    try:
        value.encode()  # a hundred times as fast as looking for halves, and there hardly ever are any
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", value)
    return value


def shown_input(given: UserInput) -> list[Json]:
    """User input as the blocks that it came from; an own form of text becomes a link or a resource again."""
    blocks = [_shown(part) for part in as_parts(given)]
    return [block for block in blocks if block is not None]


def _shown(part: ContentPart) -> Json | None:
    if not isinstance(part, TextPart):
        return chunk_block(part)
    if link := _LINK.fullmatch(part.text):
        return {"type": "resource_link", "uri": unescape(link.group(1)), "name": unescape(link.group(2))}
    if found := _RESOURCE.fullmatch(part.text):
        text = _CLOSED.sub("</", found.group(2))
        return {"type": "resource", "resource": {"uri": unescape(found.group(1)), "text": text}}
    return chunk_block(part)
