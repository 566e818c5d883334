"""Files of the user that hold keys and are written as a whole: the configuration, `mcp.json`."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from kimi.domain.errors import ConfigError
from kimi.infrastructure.store.files.disk import create_file, make_private_directory, replace_file
from kimi.infrastructure.store.files.lock import hold_lock


def write_private_file(path: str, text: str) -> None:
    """Replace the file atomically, readable for its owner only; a link stays a link, missing directories are made.

    Callers are within `lock_for_change`. A lone surrogate (no UTF-8 argument) is written as the escape that JSON and
    TOML have for it. Blocks until the text is on the disk. Raises OSError: the old file is as it was.
    """
    target = os.path.realpath(path)
    make_private_directory(os.path.dirname(target))
    replace_file(target, _encode_text(text))


def create_private_file(path: str, text: str) -> None:
    """The same for a file that is not there yet; one that somebody else makes meanwhile stays as it is."""
    target = os.path.realpath(path)
    make_private_directory(os.path.dirname(target))
    create_file(target, _encode_text(text))


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def lock_for_change(path: str) -> Generator[None, None, None]:
    """Between reading a file and writing it again: whoever else changes it in this way waits meanwhile. Blocks.

    Raises:
        ConfigError: somebody else does not stop changing it.
        OSError: nothing can be written there.
    """
    target = os.path.realpath(path)
    make_private_directory(os.path.dirname(target))
    busy = ConfigError(f"Another program is changing {target}; try again when it is done.")
    with hold_lock(f"{target}.lock", busy):
        yield
