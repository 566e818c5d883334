"""Pasted text and images: placeholders in the input, the whole content in the prompt (runtime spec 8)."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl, TextPart

FOLD_FROM_CHARACTERS = 1000
FOLD_FROM_LINES = 15
MAX_IMAGE_BYTES = 20 * 1024 * 1024
_PLACEHOLDER = re.compile(r"\[Pasted text #\d+ \+\d+ lines\]|\[image:[^\[\]\n]+,\d+x\d+\]")
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@dataclass(frozen=True, slots=True)
class PastedImage:
    """An image that is sent with a prompt."""

    mime: str
    data: bytes

    @property
    def message_part(self) -> ImagePart:
        """The image as a part of the user's message."""
        return ImagePart(MediaUrl(f"data:{self.mime};base64,{base64.b64encode(self.data).decode()}"))


def read_fold_thresholds(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return from how many characters and lines on pasted text is folded."""
    return (
        _parse_number(environ.get("KIMI_CLI_PASTE_CHAR_THRESHOLD"), FOLD_FROM_CHARACTERS),
        _parse_number(environ.get("KIMI_CLI_PASTE_LINE_THRESHOLD"), FOLD_FROM_LINES),
    )


def _parse_number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default


@dataclass(slots=True)
class PastedContent:
    """The content behind the placeholders in the input. Images are also kept in `image_directory`."""

    limits: tuple[int, int] = (FOLD_FROM_CHARACTERS, FOLD_FROM_LINES)
    image_directory: str | None = None
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _images: dict[str, PastedImage] = field(default_factory=dict[str, PastedImage])

    def fold_text(self, text: str) -> str:
        """Return what to insert for a pasted text: the text, or a placeholder when it is long."""
        lines = text.count("\n") + 1
        if len(text) <= self.limits[0] and lines <= self.limits[1]:
            return text
        placeholder = f"[Pasted text #{len(self._texts) + 1} +{lines} lines]"
        self._texts[placeholder] = text
        return placeholder

    def add_image(self, image: PastedImage) -> str:
        """Keep an image, also in the cache directory; return its placeholder."""
        name = f"{hashlib.sha256(image.data).hexdigest()[:12]}.{_SUFFIXES[image.mime]}"
        width, height = parse_image_size(image)
        placeholder = f"[image:{name},{width}x{height}]"
        self._images[placeholder] = image
        if self.image_directory is not None:
            _save_image(os.path.join(self.image_directory, name), image.data)
        return placeholder

    def expand_text(self, text: str) -> str:
        """Return `text` with its placeholders replaced by the folded texts."""
        return _PLACEHOLDER.sub(lambda match: self._texts.get(match[0], match[0]), text)

    def fold_again(self, text: str, folded: str) -> str:
        """Return `text`, in which the pasted texts that were folded in `folded` are folded again where they stand."""
        known = [(name, self._texts[name]) for name in _PLACEHOLDER.findall(folded) if name in self._texts]
        for placeholder, content in sorted(known, key=lambda pair: len(pair[1]), reverse=True):
            if content not in text and text.endswith(content.rstrip("\n")):  # editors take line feeds from the end
                content = content.rstrip("\n")
            text = text.replace(content, placeholder, 1) if content else text
        return text

    def split_into_parts(self, text: str) -> tuple[ContentPart, ...]:
        """Return `text` as message parts when it has images; else none, and `expand_text` is the whole prompt."""
        if not any(placeholder in text for placeholder in self._images):
            return ()
        parts: list[ContentPart] = []
        rest = 0
        for match in _PLACEHOLDER.finditer(text):
            if (image := self._images.get(match[0])) is not None:
                parts += self._build_text_parts(text[rest : match.start()])
                parts.append(image.message_part)
                rest = match.end()
        return (*parts, *self._build_text_parts(text[rest:]))

    def _build_text_parts(self, text: str) -> list[TextPart]:
        return [TextPart(self.expand_text(text))] if text.strip() else []


def _save_image(path: str, data: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
    except OSError:
        pass  # the image is sent with the prompt anyway


def read_image(path: str) -> PastedImage | None:
    """Return the image in a file; None when it is none that models accept."""
    try:
        if os.path.getsize(path) > MAX_IMAGE_BYTES:
            return None
        with open(path, "rb") as file:
            return parse_image(file.read())
    except OSError:
        return None


def parse_image(data: bytes) -> PastedImage | None:
    """Return the image in these bytes; None when its format is not accepted."""
    for mime, magic in (("image/png", b"\x89PNG\r\n\x1a\n"), ("image/jpeg", b"\xff\xd8\xff"), ("image/gif", b"GIF8")):
        if data.startswith(magic):
            return PastedImage(mime, data)
    return PastedImage("image/webp", data) if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def parse_image_size(image: PastedImage) -> tuple[int, int]:
    """Return width and height in pixels; 0 and 0 when the header does not contain them."""
    data = image.data
    try:
        if image.mime == "image/png":
            return struct.unpack(">II", data[16:24])
        if image.mime == "image/gif":
            return struct.unpack("<HH", data[6:10])
        return _parse_jpeg_size(data) if image.mime == "image/jpeg" else (0, 0)
    except (struct.error, IndexError):
        return 0, 0


def _parse_jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while data[at] == 0xFF:
        if 0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return 0, 0
