"""The size budget for results from outside: external tools and MCP servers (tools spec 4.7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, VideoPart
from kimi.domain.tools.tool import ToolReturnValue

TEXT_CHARS = 100_000
MEDIA_PARTS = 8
MEDIUM_BYTES = 5 * 1024 * 1024
ALL_MEDIA_BYTES = 10 * 1024 * 1024


def cut_note(chars: int) -> str:
    """What ends a text that was cut at `chars` characters."""
    return (
        f"\n\n[Output truncated: exceeded {chars} character limit. "
        "Use pagination or more specific queries to get remaining content.]"
    )


@dataclass(slots=True)
class _Used:
    limit: int
    chars: int = 0
    media: int = 0
    media_bytes: int = 0
    cut: bool = False


def within_budget(result: ToolReturnValue, chars: int = TEXT_CHARS) -> ToolReturnValue:
    """`result` with at most `chars` characters of text and 8 media parts; what is cut or dropped is said."""
    if isinstance(result.output, str):
        if len(result.output) <= chars:
            return result
        return replace(result, output=result.output[:chars] + cut_note(chars))
    used = _Used(chars)
    kept = [fitting for part in result.output if (fitting := _fitting(part, used)) is not None]
    if used.cut:
        kept.append(TextPart(cut_note(chars)))
    return replace(result, output=tuple(kept))


def _fitting(part: ContentPart, used: _Used) -> ContentPart | None:
    if isinstance(part, (TextPart, ThinkPart)):
        return _fitting_text(part, used)
    url = _url(part)
    size = len(url) * 3 // 4 if url.startswith("data:") else 0
    used.media += 1
    noun = part.type.removesuffix("_url")
    if used.media > MEDIA_PARTS:
        return _fitting_text(TextPart(f"[{noun} dropped: more than {MEDIA_PARTS} in one result]"), used)
    if size > MEDIUM_BYTES or used.media_bytes + size > ALL_MEDIA_BYTES:
        return _fitting_text(TextPart(f"[{noun} dropped: {size / 1024 / 1024:.1f} MiB exceeds the limit]"), used)
    used.media_bytes += size
    return part


def _fitting_text(part: TextPart | ThinkPart, used: _Used) -> ContentPart | None:
    text = part.text if isinstance(part, TextPart) else part.think
    room = used.limit - used.chars
    used.chars += len(text)
    if len(text) <= room:
        return part
    used.cut = True
    if room <= 0:
        return None
    return TextPart(text[:room]) if isinstance(part, TextPart) else replace(part, think=text[:room])


def _url(part: ImagePart | AudioPart | VideoPart) -> str:
    match part:
        case ImagePart():
            return part.image_url.url
        case AudioPart():
            return part.audio_url.url
        case VideoPart():
            return part.video_url.url
