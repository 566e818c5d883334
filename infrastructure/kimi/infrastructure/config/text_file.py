"""Reads files that a user wrote: UTF-8, of limited length."""

from __future__ import annotations

import errno
from typing import Final

MAX_CHARS: Final = 4_000_000
"""In characters: no user writes that much, but a device may never end."""


def read_text(path: str, newline: str | None = None) -> str:
    """Return the text of a file, without a byte order mark; `newline` as for `open`.

    Raises:
        OSError: it cannot be read, or is longer than `MAX_CHARS`; `strerror` says which.
        UnicodeDecodeError: it is not UTF-8.
    """
    with open(path, encoding="utf-8", newline=newline) as file:  # a codec for the mark would be one more module
        text = file.read(MAX_CHARS + 1).removeprefix("\ufeff")
    if len(text) > MAX_CHARS:
        raise OSError(errno.EFBIG, f"it has more than {MAX_CHARS} characters", path)
    return text
