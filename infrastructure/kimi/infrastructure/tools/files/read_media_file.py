"""ReadMediaFile: an image or a video from the disk that the model sees (tools spec 3.3)."""

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
from kimi.infrastructure.tools.files.file_types import HEAD_BYTES, FileType, detect_file_type
from kimi.infrastructure.tools.files.path_policy import (
    PathPolicy,
    ResolvedPath,
    describe_error,
    missing_file_error,
    not_a_file_error,
)
from kimi.infrastructure.tools.files.pictures import MAX_BYTES, MAX_SIDE, Picture, PictureRefused, prepare_picture
from kimi.infrastructure.tools.files.read_file import prepare_read
from kimi.infrastructure.tools.params import build_schema, parse_arguments, prepare_finished_call

MAX_FILE_BYTES = 100 * 1024 * 1024

_CAPABILITY_BY_KIND = {"image": "image_in", "video": "video_in"}

_COORDINATES_ADVICE = (
    "When you speak of places in it, give coordinates relative to its width and height, from 0 to 1, counted from the "
    "top left corner; multiply by the original size for pixels."
)


class ReadMediaFileParams(BaseModel):
    """Arguments of ReadMediaFile."""

    path: Annotated[str, Field(description="The path of the image or video.")]


class ReadMediaFileTool:
    """The ReadMediaFile tool of one conversation; `capabilities` are those of its model."""

    def __init__(self, workspace: Workspace, policy: PathPolicy, capabilities: frozenset[str]) -> None:
        self._workspace = workspace
        self._policy = policy
        self._capabilities = capabilities

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _spec(tuple(kind for kind, needed in _CAPABILITY_BY_KIND.items() if needed in self._capabilities))

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """See `Tool`. Needs approval only outside the workspace, if the settings say so."""
        params = parse_arguments(ReadMediaFileParams, arguments)
        if isinstance(params, ToolReturnValue):
            yield prepare_finished_call(params)
            return
        yield await prepare_read(self._policy, await self._policy.locate(params.path), partial(self._read, params.path))

    async def _read(self, given_path: str, target: ResolvedPath) -> ToolReturnValue:
        try:
            stat = await self._workspace.stat(target.real_path)
            if (rejection := _check_file(given_path, target, stat)) is not None:
                return rejection
            content = await self._read_content(target.real_path)
        except (OSError, ValueError) as error:
            return tool_error(f"Failed to read {given_path}. Error: {describe_error(error)}", "Failed to read file")
        kind = detect_file_type(target.real_path, content[:HEAD_BYTES])
        rejection = _check_content(given_path, target, content, kind) or self._check_capability(kind)
        if rejection is not None:
            return rejection
        return await to_thread.run_sync(
            _build_result, target.named_path.absolute, content, kind, abandon_on_cancel=True
        )

    async def _read_content(self, path: str) -> bytes:
        """Read the whole file; of one that grows past the limit meanwhile, a little more than the limit."""
        content = bytearray()
        async with self._workspace.read(path) as blocks:
            async for block in blocks:
                content += block
                if len(content) > MAX_FILE_BYTES:
                    break
        return bytes(content)

    def _check_capability(self, kind: FileType) -> ToolReturnValue | None:
        if _CAPABILITY_BY_KIND[kind.kind] in self._capabilities:
            return None
        return tool_error(
            f"The current model does not support {kind.kind} input. Tell the user to use a model with {kind.kind} "
            "input capability.",
            "Unsupported media type",
        )


def _check_file(given_path: str, target: ResolvedPath, stat: FileStat | None) -> ToolReturnValue | None:
    """Return the error for something that is not a file, or too large to be read at all."""
    if stat is None:
        return missing_file_error(given_path)
    if stat.kind != "file":
        return not_a_file_error(given_path)
    return _too_large_error(target, stat.size) if stat.size > MAX_FILE_BYTES else None


def _too_large_error(target: ResolvedPath, size: int) -> ToolReturnValue:
    message = f"`{target.named_path.absolute}` is {size} bytes, which exceeds the max 100MB bytes for media files."
    return tool_error(message, "File too large")


def _check_content(given_path: str, target: ResolvedPath, content: bytes, kind: FileType) -> ToolReturnValue | None:
    """Return the error for content that is not an image or video."""
    if not content:
        return tool_error(f"`{target.named_path.absolute}` is empty.", "Empty file")
    if len(content) > MAX_FILE_BYTES:
        return _too_large_error(target, len(content))
    if kind.kind == "text":
        return tool_error(f"`{given_path}` is a text file. Use ReadFile to read text files.", "Unsupported file type")
    if kind.kind == "unknown":
        return tool_error(f"`{given_path}` is neither an image nor a video that can be shown.", "Unsupported file type")
    return None


def _build_result(path: str, content: bytes, kind: FileType) -> ToolReturnValue:
    if kind.kind == "video":
        facts = f"{kind.mime}, {len(content)} bytes"
        return _format_result("video", path, VideoPart(_build_data_url(kind.mime, content)), facts, "")
    try:
        picture = prepare_picture(content, kind.mime)
    except PictureRefused as error:
        return tool_error(f"`{path}` cannot be shown: {error}", "Unsupported image format")
    facts = f"{kind.mime}, {len(content)} bytes{_format_size(picture)}"
    changed = " It was converted or scaled down for you." if picture.content is not content else ""
    return _format_result(
        "image",
        path,
        ImagePart(_build_data_url(picture.mime, picture.content)),
        facts,
        f"{changed} {_COORDINATES_ADVICE}",
    )


def _format_result(kind: str, path: str, part: ContentPart, facts: str, remark: str) -> ToolReturnValue:
    """Put the medium between two tags that name it."""
    output = (TextPart(f'<{kind} path="{escape(path)}">'), part, TextPart(f"</{kind}>"))
    return tool_ok(output, f"Loaded {kind} file `{path}` ({facts}).{remark}")


def _format_size(picture: Picture) -> str:
    return f", original size {picture.original_size[0]}x{picture.original_size[1]}px" if picture.original_size else ""


def _build_data_url(mime: str, content: bytes) -> MediaUrl:
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
    return ToolSpec(
        "ReadMediaFile",
        description,
        build_schema(ReadMediaFileParams),
        True,
        "read",
        key_argument="path",
        path_argument="path",
    )
