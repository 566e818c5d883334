"""Detects the kind of a file by its name and its first 512 bytes (tools spec 3.2, T-66)."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import splitext
from typing import Literal, TypeAlias

FileKind: TypeAlias = Literal["text", "image", "video", "unknown"]

HEAD_BYTES = 512
"""How many bytes from the beginning are inspected."""


@dataclass(frozen=True, slots=True)
class FileType:
    """The kind of a file; `mime` is the type of an image or a video, otherwise empty."""

    kind: FileKind
    mime: str = ""


_MIME_BY_EXTENSION = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".jfif": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".ico": "image/x-icon",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".avif": "image/avif",
    ".mp4": "video/mp4",
    ".m4v": "video/x-m4v",
    ".mov": "video/quicktime",
    ".mkv": "video/x-matroska",
    ".webm": "video/webm",
    ".avi": "video/x-msvideo",
    ".wmv": "video/x-ms-wmv",
    ".flv": "video/x-flv",
    ".mpg": "video/mpeg",
    ".mpeg": "video/mpeg",
    ".3gp": "video/3gpp",
    ".3g2": "video/3gpp2",
}

_BINARY_EXTENSIONS = frozenset(
    " ".join(
        (
            ".zip .tar .gz .tgz .bz2 .tbz2 .xz .txz .7z .rar .zst .lz .lz4 .lzma .cab .ar .deb .rpm .iso .dmg .img",
            ".jar .war .ear .apk .ipa .aab .whl .egg .nupkg .crx .xpi",
            ".pdf .doc .docx .dot .dotx .xls .xlsx .xlsb .ppt .pptx .odt .ods .odp .pages .numbers .key .epub .mobi",
            ".ttf .otf .ttc .woff .woff2 .eot",
            ".exe .dll .so .dylib .a .o .obj .lib .bin .com .msi .sys .class .pyc .pyo .pyd .elc .wasm .node",
            ".db .sqlite .sqlite3 .mdb .accdb .dbf .parquet .feather .arrow .orc .npy .npz .pkl .pickle .h5 .hdf5",
            ".mp3 .wav .flac .aac .ogg .oga .opus .m4a .wma .aiff .aif .mid .midi .amr",
            ".psd .ai .sketch .fig .xcf .blend .fbx .glb .stl .swf .onnx .pt .pth .safetensors .gguf .ckpt",
        )
    ).split()
)

_MAGIC_NUMBERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\x01\0", "image/x-icon"),
    (0, b"\0\0\x01\xba", "video/mpeg"),
    (0, b"\0\0\x01\xb3", "video/mpeg"),
    (0, b"FLV\x01", "video/x-flv"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "video/x-ms-wmv"),
)

_MIME_BY_RIFF_TYPE = {b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}

_MIME_BY_ISO_BRAND: tuple[tuple[bytes, str], ...] = (
    (b"avif", "image/avif"),
    (b"avis", "image/avif"),
    (b"heic", "image/heic"),
    (b"heix", "image/heic"),
    (b"hevc", "image/heic"),
    (b"mif1", "image/heif"),
    (b"msf1", "image/heif"),
    (b"M4A ", ""),
    (b"M4B ", ""),
    (b"qt  ", "video/quicktime"),
    (b"M4V ", "video/x-m4v"),
    (b"3g2", "video/3gpp2"),
    (b"3gp", "video/3gpp"),
)


def detect_file_type(path: str, head: bytes) -> FileType:
    """Return the type of the file named `path` that begins with `head`.

    It is unknown if there is a NUL byte that is not part of UTF-16 or UTF-32, if the extension is that of a binary
    format, or if extension and beginning disagree.
    """
    extension = splitext(path)[1].lower()
    if extension in _BINARY_EXTENSIONS:
        return FileType("unknown")
    claimed, found = _MIME_BY_EXTENSION.get(extension, ""), detect_media_type(head)
    if claimed:
        agree = not head or claimed.partition("/")[0] == found.partition("/")[0]
        return _media_file_type(found or claimed) if agree else FileType("unknown")
    if found:
        return FileType("unknown") if extension else _media_file_type(found)
    return FileType("unknown" if b"\0" in head[:HEAD_BYTES] and not _is_wide_text(head[:HEAD_BYTES]) else "text")


def _is_wide_text(head: bytes) -> bool:
    from kimi.infrastructure.tools.files.text_encoding import detect_mark  # only for a file with NUL bytes

    return detect_mark(head) is not None


def detect_media_type(head: bytes) -> str:
    """Return the MIME type of an image or a video by its first bytes; empty for anything else."""
    for offset, magic, mime in _MAGIC_NUMBERS:
        if head.startswith(magic, offset):
            return mime
    if head.startswith(b"RIFF"):
        return _MIME_BY_RIFF_TYPE.get(head[8:12], "")
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if head.startswith(b"BM") and len(head) >= 26 and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    return _detect_iso_media(head)


def _detect_iso_media(head: bytes) -> str:
    if head[4:8] != b"ftyp":
        return ""
    brand = head[8:12]
    return next((mime for start, mime in _MIME_BY_ISO_BRAND if brand.startswith(start)), "video/mp4")


def _media_file_type(mime: str) -> FileType:
    return FileType("image" if mime.startswith("image/") else "video", mime)
