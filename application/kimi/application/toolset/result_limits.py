"""The size budget for results of external tools and MCP servers (tools spec 4.7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, VideoPart
from kimi.domain.tools.tool import ToolReturnValue

MAX_TEXT_CHARS = 100_000
MAX_MEDIA_PARTS = 8
MAX_MEDIUM_BYTES = 5 * 1024 * 1024
MAX_ALL_MEDIA_BYTES = 10 * 1024 * 1024


def truncation_note(chars: int) -> str:
    """Return the note at the end of a text that was truncated at `chars` characters."""
    return (
        f"\n\n[Output truncated: exceeded {chars} character limit. "
        "Use pagination or more specific queries to get remaining content.]"
    )


@dataclass(slots=True)
class _BudgetUsage:
    limit: int
    chars: int = 0
    media: int = 0
    media_bytes: int = 0
    is_truncated: bool = False


def fit_result_to_budget(result: ToolReturnValue, chars: int = MAX_TEXT_CHARS) -> ToolReturnValue:
    """Return `result` with at most `chars` characters of text and 8 media parts, with notes on what was removed."""
    if isinstance(result.output, str):
        if len(result.output) <= chars:
            return result
        return replace(result, output=result.output[:chars] + truncation_note(chars))
    used = _BudgetUsage(chars)
    kept = [fitting for part in result.output if (fitting := _fit_part(part, used)) is not None]
    if used.is_truncated:
        kept.append(TextPart(truncation_note(chars)))
    return replace(result, output=tuple(kept))


def _fit_part(part: ContentPart, usage: _BudgetUsage) -> ContentPart | None:
    if isinstance(part, (TextPart, ThinkPart)):
        return _fit_text(part, usage)
    url = _media_url(part)
    size = len(url) * 3 // 4 if url.startswith("data:") else 0
    usage.media += 1
    noun = part.type.removesuffix("_url")
    if usage.media > MAX_MEDIA_PARTS:
        return _fit_text(TextPart(f"[{noun} dropped: more than {MAX_MEDIA_PARTS} in one result]"), usage)
    if size > MAX_MEDIUM_BYTES or usage.media_bytes + size > MAX_ALL_MEDIA_BYTES:
        return _fit_text(TextPart(f"[{noun} dropped: {size / 1024 / 1024:.1f} MiB exceeds the limit]"), usage)
    usage.media_bytes += size
    return part


def _fit_text(part: TextPart | ThinkPart, usage: _BudgetUsage) -> ContentPart | None:
    text = part.text if isinstance(part, TextPart) else part.think
    room = usage.limit - usage.chars
    usage.chars += len(text)
    if len(text) <= room:
        return part
    usage.is_truncated = True
    if room <= 0:
        return None
    return TextPart(text[:room]) if isinstance(part, TextPart) else replace(part, think=text[:room])


def _media_url(part: ImagePart | AudioPart | VideoPart) -> str:
    match part:
        case ImagePart():
            return part.image_url.url
        case AudioPart():
            return part.audio_url.url
        case VideoPart():
            return part.video_url.url
