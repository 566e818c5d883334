"""The content of tool calls: results, diffs and images, cut to a bounded size (acp spec 3.3, 3.5)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import (
    BackgroundTaskBlock,
    BriefBlock,
    DiffBlock,
    DisplayBlock,
    ShellBlock,
    ToolReturnValue,
)
from kimi.interfaces.acp.updates.tool_presentation import make_absolute

JsonDict: TypeAlias = dict[str, Any]

MAX_TEXT_BYTES: Final = 32 * 1024
"""How much text output is shown; the model gets all that the tool returned."""
MAX_IMAGE_CHARS: Final = 5 * 1024 * 1024
"""How much base64 one image may have; a larger image is linked."""
MAX_WHOLE_FILE_BYTES: Final = 256 * 1024
"""A diff holds the whole texts up to this size, else one hunk for each change."""

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)\Z", re.DOTALL)


def text_block(text: str) -> JsonDict:
    """Return a content block of text."""
    return {"type": "text", "text": text}


def block_content(block: JsonDict) -> JsonDict:
    """Return a content block as content of a tool call."""
    return {"type": "content", "content": block}


def text_content(text: str) -> JsonDict:
    """Return text as content of a tool call."""
    return block_content(text_block(text))


def truncate_middle(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return head and tail of a text over `limit` bytes, with a note between them."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    half = (limit - 64) // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}\n[... {len(data) - 2 * half} bytes are not shown ...]\n{tail}"


def media_block(part: ContentPart, file: str | None = None) -> JsonDict | None:
    """Return a media part as a content block; `file` is the path that it came from. None if nothing can be shown."""
    match part:
        case ImagePart(image_url=medium):
            return _media_url_block("image", medium, file)
        case AudioPart(audio_url=medium):
            return _media_url_block("audio", medium, file)
        case VideoPart(video_url=medium):
            return _media_url_block("video", medium, file)
        case _:
            return None


def _media_url_block(kind: str, media_url: MediaUrl, file: str | None) -> JsonDict | None:
    data = _DATA_URL.match(media_url.url)
    if data is not None and kind != "video" and len(data.group(2)) <= MAX_IMAGE_CHARS:
        return {"type": kind, "mimeType": data.group(1), "data": data.group(2)}
    if file is not None:
        return {"type": "resource_link", "uri": file_uri(file), "name": os.path.basename(file)}
    if media_url.url.startswith("data:"):
        return text_block(f"[{kind}, {len(media_url.url)} characters as base64, not shown]")
    name = media_url.url.split("?")[0].rstrip("/").rpartition("/")[2] or kind
    return {"type": "resource_link", "uri": media_url.url, "name": name}


def file_uri(path: str) -> str:
    """Return an absolute path as a `file:` URI; any other path stays as it is."""
    if not os.path.isabs(path):
        return path
    from pathlib import Path  # start-up time

    return Path(path).as_uri()


def message_block(part: ContentPart) -> JsonDict | None:
    """Return a part of a message as a content block; thinking is text. None if there is nothing to show."""
    if isinstance(part, TextPart):
        return text_block(part.text) if part.text else None
    if isinstance(part, ThinkPart):
        return text_block(part.think) if part.think else None
    return media_block(part)


def build_result_content(
    result: ToolReturnValue, work_dir: str, *, file: str | None, changed: ChangedText | None
) -> list[JsonDict]:
    """Return the content that shows a result: diffs, then output, then the error; one line if there is nothing."""
    shown = build_diffs(result.display, work_dir, changed)
    shown += _build_output(result.output, file)
    shown += [
        text_content(format_task_line(block)) for block in result.display if isinstance(block, BackgroundTaskBlock)
    ]
    if result.is_error and result.message and not _contains_text(shown, result.message):
        shown.append(text_content(truncate_middle(result.message)))
    if not shown:
        brief = next((block.text for block in result.display if isinstance(block, BriefBlock)), "")
        line = brief or result.message
        shown += [text_content(truncate_middle(line))] if line else []
    return shown


def _build_output(output: str | tuple[ContentPart, ...], file: str | None) -> list[JsonDict]:
    parts = (TextPart(output),) if isinstance(output, str) else output
    blocks: list[JsonDict] = []
    room = MAX_TEXT_BYTES
    for part in parts:
        if isinstance(part, TextPart):
            if part.text and room > 128:
                text = truncate_middle(part.text, room)
                room -= len(text.encode("utf-8", "replace"))
                blocks.append(text_content(text))
        elif (block := media_block(part, file)) is not None:
            blocks.append(block_content(block))
    return blocks


def _contains_text(contents: Iterable[JsonDict], text: str) -> bool:
    return any(item["type"] == "content" and text in item["content"].get("text", "") for item in contents)


def build_raw_output(result: ToolReturnValue) -> JsonDict:
    """Return the `rawOutput` of a result, for programs: without binary data, and cut like the content."""
    output: Any = result.output
    output = (
        truncate_middle(result.output)
        if isinstance(result.output, str)
        else [_build_raw_part(part) for part in result.output]
    )
    return {"isError": result.is_error, "message": truncate_middle(result.message), "output": output}


def _build_raw_part(part: ContentPart) -> JsonDict:
    if isinstance(part, TextPart):
        return text_block(truncate_middle(part.text))
    block = media_block(part) or {"type": part.type}
    return {key: value for key, value in block.items() if key != "data"}


def format_task_line(block: BackgroundTaskBlock) -> str:
    """Describe a background task in one line."""
    return f"{block.task_id} ({block.kind}, {block.status}): {block.description}"


def build_approval_content(
    display: Sequence[DisplayBlock], work_dir: str, changed: ChangedText | None
) -> list[JsonDict]:
    """Return the content that shows what a call would do once it is approved.

    Where hidden characters were made visible, the hunks are shown: the whole texts have them as they are.
    """
    from kimi.domain.tools.visible_text import HIDDEN_NOTE  # start-up time

    shown = build_diffs(display, work_dir, None if BriefBlock(HIDDEN_NOTE) in display else changed)
    for block in display:
        if isinstance(block, ShellBlock):
            shown.append(text_content(format_fenced(block.command, block.language)))
            if _count_utf8_bytes(block.command) > MAX_TEXT_BYTES:
                shown.append(text_content("The whole command is in the raw input of the call."))
        elif isinstance(block, BackgroundTaskBlock):
            shown.append(text_content(format_task_line(block)))
        elif isinstance(block, BriefBlock) and block.text:
            shown.append(text_content(truncate_middle(block.text)))
    return shown


def format_fenced(text: str, language: str) -> str:
    """Return `text` as a fenced block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{truncate_middle(text)}\n{fence}"


def build_diffs(display: Sequence[DisplayBlock], work_dir: str, changed: ChangedText | None) -> list[JsonDict]:
    """Return the changes in `display`: one diff if the whole texts are known and small, else one per hunk."""
    found: list[JsonDict] = []
    if not display:
        return found
    diffs = [block for block in display if isinstance(block, DiffBlock)]
    for path, group in groupby(diffs, lambda block: block.path):
        found += _build_file_diffs(make_absolute(path, work_dir) or path, list(group), changed)
    return found


def _build_file_diffs(path: str, blocks: Sequence[DiffBlock], changed: ChangedText | None) -> list[JsonDict]:
    if any(block.is_summary for block in blocks):
        return [
            text_content(f"{path}: {block.old_text} -> {block.new_text}")
            if block.is_summary
            else _build_hunk(path, block)
            for block in blocks
        ]
    if (
        changed is not None
        and max(_count_utf8_bytes(changed.old or ""), _count_utf8_bytes(changed.new)) <= MAX_WHOLE_FILE_BYTES
    ):
        return [_build_diff(path, changed.old, changed.new)]
    return [_build_hunk(path, block) for block in blocks]


def _count_utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _build_hunk(path: str, block: DiffBlock) -> JsonDict:
    is_new = not block.old_text and block.old_start == 1 and block.new_start == 1
    lines = {"oldStart": block.old_start, "newStart": block.new_start}
    return _build_diff(path, None if is_new else block.old_text, block.new_text) | {"_meta": {"kimi": lines}}


def _build_diff(path: str, old: str | None, new: str) -> JsonDict:
    """Return a diff, without `oldText` for a new file: absent and null mean the same (acp spec 2.6)."""
    before = {} if old is None else {"oldText": old}
    return {"type": "diff", "path": path, **before, "newText": new}


def find_first_changed_line(display: Sequence[DisplayBlock]) -> int | None:
    """Return the number of the first changed line in the new text; None if no diff holds it."""
    block = next((block for block in display if isinstance(block, DiffBlock) and not block.is_summary), None)
    if block is None:
        return None
    old, new = block.old_text.split("\n"), block.new_text.split("\n")
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return block.new_start + same
