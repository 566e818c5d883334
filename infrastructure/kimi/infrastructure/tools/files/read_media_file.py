"""ReadMediaFile: an image or a video of the disk as something that the model sees (tools spec 3.3)."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache, partial
from html import escape
from typing import Annotated

from anyio import to_thread
from pydantic import BaseModel, Field

from kimi.application.ports import FileStat, PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl, TextPart, VideoPart
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.files.file_types import HEAD_BYTES, FileType, file_type
from kimi.infrastructure.tools.files.path_policy import PathPolicy, Target, missing_file, not_a_file, reason
from kimi.infrastructure.tools.files.pictures import MAX_BYTES, MAX_SIDE, Picture, PictureRefused, prepared_picture
from kimi.infrastructure.tools.files.read_file import prepared_read
from kimi.infrastructure.tools.params import answered, parse_arguments, schema_of

MAX_FILE_BYTES = 100 * 1024 * 1024

_NEEDS = {"image": "image_in", "video": "video_in"}

_COORDINATES = (
    "When you speak of places in it, give coordinates relative to its width and height, from 0 to 1, counted from the "
    "top left corner; multiply by the original size for pixels."
)


class Params(BaseModel):
    """Arguments of ReadMediaFile."""

    path: Annotated[str, Field(description="The path of the image or video.")]


class ReadMediaFile:
    """The ReadMediaFile tool of one conversation; `capabilities` are those of its model."""

    def __init__(self, workspace: Workspace, policy: PathPolicy, capabilities: frozenset[str]) -> None:
        self._workspace = workspace
        self._policy = policy
        self._capabilities = capabilities

    @property
    def spec(self) -> ToolSpec:
        """Name, text and schema for the model."""
        return _spec(tuple(kind for kind, needed in _NEEDS.items() if needed in self._capabilities))

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """Ready to read; only a read outside the workspace may have to be approved."""
        params = parse_arguments(Params, arguments)
        if isinstance(params, ToolReturnValue):
            yield answered(params)
            return
        yield await prepared_read(self._policy, params.path, partial(self._read, params.path))

    async def _read(self, given: str, target: Target) -> ToolReturnValue:
        try:
            stat = await self._workspace.stat(target.real)
            if (refused := _unfit(given, target, stat)) is not None:
                return refused
            content = await self._content(target.real)
        except (OSError, ValueError) as error:
            return tool_error(f"Failed to read {given}. Error: {reason(error)}", "Failed to read file")
        kind = file_type(target.real, content[:HEAD_BYTES])
        refused = _unsuited(given, target, content, kind) or self._unseen(kind)
        if refused is not None:
            return refused
        return await to_thread.run_sync(_shown, target.named.absolute, content, kind, abandon_on_cancel=True)

    async def _content(self, path: str) -> bytes:
        """All of the file, or a little more than the limit of one that grows meanwhile."""
        content = bytearray()
        async with self._workspace.read(path) as blocks:
            async for block in blocks:
                content += block
                if len(content) > MAX_FILE_BYTES:
                    break
        return bytes(content)

    def _unseen(self, kind: FileType) -> ToolReturnValue | None:
        if _NEEDS[kind.kind] in self._capabilities:
            return None
        return tool_error(
            f"The current model does not support {kind.kind} input. Tell the user to use a model with {kind.kind} "
            "input capability.",
            "Unsupported media type",
        )


def _unfit(given: str, target: Target, stat: FileStat | None) -> ToolReturnValue | None:
    """The error for what is no file, or too large to be read at all."""
    if stat is None:
        return missing_file(given)
    if stat.kind != "file":
        return not_a_file(given)
    return _too_large(target, stat.size) if stat.size > MAX_FILE_BYTES else None


def _too_large(target: Target, size: int) -> ToolReturnValue:
    message = f"`{target.named.absolute}` is {size} bytes, which exceeds the max 100MB bytes for media files."
    return tool_error(message, "File too large")


def _unsuited(given: str, target: Target, content: bytes, kind: FileType) -> ToolReturnValue | None:
    """The error for content that is no image or video."""
    if not content:
        return tool_error(f"`{target.named.absolute}` is empty.", "Empty file")
    if len(content) > MAX_FILE_BYTES:
        return _too_large(target, len(content))
    if kind.kind == "text":
        return tool_error(f"`{given}` is a text file. Use ReadFile to read text files.", "Unsupported file type")
    if kind.kind == "unknown":
        return tool_error(f"`{given}` is neither an image nor a video that can be shown.", "Unsupported file type")
    return None


def _shown(path: str, content: bytes, kind: FileType) -> ToolReturnValue:
    if kind.kind == "video":
        facts = f"{kind.mime}, {len(content)} bytes"
        return _loaded("video", path, VideoPart(_url(kind.mime, content)), facts, "")
    try:
        picture = prepared_picture(content, kind.mime)
    except PictureRefused as error:
        return tool_error(f"`{path}` cannot be shown: {error}", "Unsupported image format")
    facts = f"{kind.mime}, {len(content)} bytes{_size(picture)}"
    changed = " It was converted or scaled down for you." if picture.content is not content else ""
    return _loaded("image", path, ImagePart(_url(picture.mime, picture.content)), facts, f"{changed} {_COORDINATES}")


def _loaded(kind: str, path: str, part: ContentPart, facts: str, remark: str) -> ToolReturnValue:
    """The medium between two tags that name it."""
    output = (TextPart(f'<{kind} path="{escape(path)}">'), part, TextPart(f"</{kind}>"))
    return tool_ok(output, f"Loaded {kind} file `{path}` ({facts}).{remark}")


def _size(picture: Picture) -> str:
    return f", original size {picture.size[0]}x{picture.size[1]}px" if picture.size else ""


def _url(mime: str, content: bytes) -> MediaUrl:
    return MediaUrl(f"data:{mime};base64,{base64.b64encode(content).decode()}")


@cache
def _spec(kinds: tuple[str, ...]) -> ToolSpec:
    named = " or ".join({"image": "an image", "video": "a video"}[kind] for kind in kinds) or "a media file"
    description = (
        f"Look at {named} of the disk. Use ReadFile for text, and not this tool to find out whether a file exists.\n\n"
        "- `path`: relative to the working directory, absolute, or starting with `~/`. A file outside the working "
        "directory needs an absolute path. Files that hold secrets are refused.\n"
        f"- At most {MAX_FILE_BYTES // 1024 // 1024} MiB. Images over {MAX_BYTES // 1024 // 1024} MiB or {MAX_SIDE:,} "
        "pixels on the longer side are scaled down, and formats other than PNG, JPEG, GIF and WebP converted, where "
        "that is possible; the message gives the original size."
    )
    return ToolSpec("ReadMediaFile", description, schema_of(Params), True, "read", key_argument="path")
