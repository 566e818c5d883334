"""Content parts: the pieces of a message or of a tool result (wire spec 6.1).

Field order is the order on the wire. A part is immutable; streamed text and thinking arrive as many small parts, which
`kimi.domain.content.stream.PartMerger` merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Capability: TypeAlias = Literal["thinking", "always_thinking", "image_in", "video_in"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text, or a piece of it while it streams."""

    type: Literal["text"] = field(default="text", kw_only=True)
    text: str


@dataclass(frozen=True, slots=True)
class ThinkPart:
    """Thinking, or a piece of it. `encrypted` is the provider's signature and ends the part."""

    type: Literal["think"] = field(default="think", kw_only=True)
    think: str
    encrypted: str | None = None


@dataclass(frozen=True, slots=True)
class MediaUrl:
    """The location of a medium: an http(s) URL, a provider file URL or a `data:` URI."""

    url: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture."""

    type: Literal["image_url"] = field(default="image_url", kw_only=True)
    image_url: MediaUrl


@dataclass(frozen=True, slots=True)
class AudioPart:
    """A sound."""

    type: Literal["audio_url"] = field(default="audio_url", kw_only=True)
    audio_url: MediaUrl


@dataclass(frozen=True, slots=True)
class VideoPart:
    """A video."""

    type: Literal["video_url"] = field(default="video_url", kw_only=True)
    video_url: MediaUrl


ContentPart: TypeAlias = TextPart | ThinkPart | ImagePart | AudioPart | VideoPart
UserInput: TypeAlias = str | tuple[ContentPart, ...]

_CAPABILITY_BY_TYPE: dict[type, Capability] = {ThinkPart: "thinking", ImagePart: "image_in", VideoPart: "video_in"}
_MEDIUM: dict[type, str] = {ImagePart: "image", AudioPart: "audio", VideoPart: "video"}


def needed_capability(part: ContentPart) -> Capability | None:
    """Return the capability that a model needs to read `part`; None for text, and for audio, which is not checked."""
    return _CAPABILITY_BY_TYPE.get(type(part))


def missing_capabilities(parts: Iterable[ContentPart], available: Iterable[str]) -> list[str]:
    """Return the capabilities that `parts` need and `available` lacks, each once, in alphabetical order."""
    granted = set(available)
    if "always_thinking" in granted:
        granted.add("thinking")
    needed: set[str] = {need for part in parts if (need := needed_capability(part)) is not None}
    return sorted(needed - granted)


def media_placeholder(part: ContentPart) -> TextPart:
    """Return the text that replaces a medium in the copy for a model that cannot read it (tools spec 1.4)."""
    medium = _MEDIUM.get(type(part), "part")
    return TextPart(f"[{medium} omitted: the current model cannot read {medium}s]")


def as_parts(user_input: UserInput) -> tuple[ContentPart, ...]:
    """Return user input as parts; a string becomes one text part."""
    return (TextPart(user_input),) if isinstance(user_input, str) else user_input


def join_text(user_input: UserInput, separator: str = " ") -> str:
    """Join the text parts of the input by `separator`; media are left out."""
    if isinstance(user_input, str):
        return user_input
    return separator.join(part.text for part in user_input if isinstance(part, TextPart))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: a quarter of its ASCII characters, plus one for each other character (R-109)."""
    if text.isascii():
        return len(text) // 4
    others = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - others) // 4 + others


def estimate_parts(parts: Sequence[ContentPart], *, per_medium: int) -> int:
    """Estimate the tokens of parts: each medium counts as `per_medium` tokens, thinking counts as text."""
    total = 0
    for part in parts:
        if isinstance(part, TextPart):
            total += estimate_tokens(part.text)
        elif isinstance(part, ThinkPart):
            total += estimate_tokens(part.think)
        else:
            total += per_medium
    return total
