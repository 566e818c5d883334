"""The size budget for results from outside: external tools and MCP servers (tools spec 4.7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kimi.domain.content import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, VideoPart
from kimi.domain.tool import ToolReturnValue

TEXT_CHARS = 100_000
MEDIA_PARTS = 8
MEDIUM_BYTES = 5 * 1024 * 1024
ALL_MEDIA_BYTES = 10 * 1024 * 1024

CUT = (
    f"\n\n[Output truncated: exceeded {TEXT_CHARS} character limit. "
    "Use pagination or more specific queries to get remaining content.]"
)


@dataclass(slots=True)
class _Used:
    chars: int = 0
    media: int = 0
    media_bytes: int = 0
    cut: bool = False


def within_budget(result: ToolReturnValue) -> ToolReturnValue:
    """`result` with at most 100 000 characters of text and 8 media parts; what is cut or dropped is said."""
    if isinstance(result.output, str):
        if len(result.output) <= TEXT_CHARS:
            return result
        return replace(result, output=result.output[:TEXT_CHARS] + CUT)
    used = _Used()
    kept = [fitting for part in result.output if (fitting := _fitting(part, used)) is not None]
    if used.cut:
        kept.append(TextPart(CUT))
    return replace(result, output=tuple(kept))


def _fitting(part: ContentPart, used: _Used) -> ContentPart | None:
    if isinstance(part, (TextPart, ThinkPart)):
        return _fitting_text(part, used)
    url = _url(part)
    size = len(url) * 3 // 4 if url.startswith("data:") else 0
    used.media += 1
    if used.media > MEDIA_PARTS or size > MEDIUM_BYTES or used.media_bytes + size > ALL_MEDIA_BYTES:
        noun = part.type.removesuffix("_url")
        return TextPart(f"[{noun} dropped: {size / 1024 / 1024:.1f} MiB exceeds the limit]")
    used.media_bytes += size
    return part


def _fitting_text(part: TextPart | ThinkPart, used: _Used) -> ContentPart | None:
    text = part.text if isinstance(part, TextPart) else part.think
    room = TEXT_CHARS - used.chars
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
