"""Converts images to a format and size that providers accept (tools spec 3.3).

Uses Pillow; without it, common formats are sent as they are.
"""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 5 * 1024 * 1024
MAX_SIDE = 2048
"""The limit of the longer side, in pixels."""

MAX_PIXELS = 200_000_000
"""Images with more pixels are not decoded: a small file can claim to be a huge picture."""

_ORIENTATION_TAG, _LAST_UPRIGHT_ORIENTATION = 274, 4
"""The EXIF tag of the orientation; values above the second number mean that width and height are swapped."""

SUPPORTED_MIME_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The formats that most providers accept."""

_INSTALL_ADVICE = "install the library 'pillow' beside this program, or convert the file to PNG or JPEG"


class PictureRefused(Exception):
    """The picture cannot be shown; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The image that is sent. `original_size` is the width and height of the original, in pixels, if known."""

    content: bytes
    mime: str
    original_size: tuple[int, int] | None


def grab_clipboard() -> tuple[list[str], bytes | None]:
    """Return the paths of copied files, and the picture as PNG; nothing where Pillow is missing or cannot read it.

    For macOS and Windows: elsewhere Pillow starts programs that it looks for on the whole search path.
    """
    try:
        from PIL import Image, ImageGrab

        found: object = ImageGrab.grabclipboard()
    except (ImportError, NotImplementedError, OSError, ValueError, SyntaxError):
        return [], None
    if isinstance(found, Image.Image):
        output = io.BytesIO()
        found.save(output, "PNG")
        return [], output.getvalue()
    return ([str(path) for path in cast("list[object]", found)] if isinstance(found, list) else []), None


def prepare_picture(content: bytes, mime: str) -> Picture:
    """Return the picture unchanged, scaled down or converted. Without Pillow, large ones stay unchanged.

    Raises PictureRefused: a format that providers do not accept and that cannot be converted here.
    """
    try:
        from PIL import Image
    except ImportError:
        if mime not in SUPPORTED_MIME_TYPES:
            raise PictureRefused(f"{mime} is not taken by most models; {_INSTALL_ADVICE}.") from None
        return Picture(content, mime, read_png_size(content))
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # own limit; stderr is the user's
    try:
        with Image.open(io.BytesIO(content)) as image:
            return _fit_picture(image, content, mime)
    except Exception as error:  # the library may raise anything for a damaged file or its EXIF data
        if mime in SUPPORTED_MIME_TYPES:
            return Picture(content, mime, read_png_size(content))  # the provider may be able to read it
        raise PictureRefused(f"{mime} cannot be converted here ({error}); convert the file to PNG or JPEG.") from None


def read_png_size(content: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG from its first bytes; None for anything else."""
    if not content.startswith(b"\x89PNG\r\n\x1a\n") or len(content) < 24:
        return None
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def _fit_picture(image: Image, content: bytes, mime: str) -> Picture:
    size = image.size
    if size[0] * size[1] > MAX_PIXELS:
        raise ValueError(f"{size[0]}x{size[1]} pixels are too many")
    large = max(size) > MAX_SIDE or len(content) > MAX_BYTES
    if mime in SUPPORTED_MIME_TYPES and not large:
        return Picture(content, mime, size)
    photo = mime == "image/jpeg"
    size = (size[1], size[0]) if image.getexif().get(_ORIENTATION_TAG, 1) > _LAST_UPRIGHT_ORIENTATION else size
    smaller = _shrink_image(image, "RGB" if photo else "RGBA")
    return Picture(_encode_within_limits(smaller, photo=photo), "image/jpeg" if photo else "image/png", size)


def _shrink_image(image: Image, mode: str) -> Image:
    """Scale the picture to `MAX_SIDE` and turn it upright, because the new file has no orientation tag.

    It is scaled before anything else, so that only one large copy is in memory.
    """
    from PIL.ImageOps import exif_transpose

    fit = image if image.mode in ("RGB", "RGBA", "L", "LA", "CMYK", "YCbCr") else image.convert(mode)
    fit.thumbnail((MAX_SIDE, MAX_SIDE))
    return exif_transpose(fit).convert(mode)


def _encode_within_limits(image: Image, *, photo: bool) -> bytes:
    """Encode the picture as large as the limits allow."""
    side = MAX_SIDE
    while True:
        image.thumbnail((side, side))
        found = _encode_image(image, photo=photo)
        if len(found) <= MAX_BYTES:
            return found
        side = max(image.size) * 3 // 4


def _encode_image(image: Image, *, photo: bool) -> bytes:
    output = io.BytesIO()
    if photo:
        image.save(output, "JPEG", quality=85)
    else:
        image.save(output, "PNG", optimize=True)
    return output.getvalue()
