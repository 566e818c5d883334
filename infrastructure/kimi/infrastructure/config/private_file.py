"""Files of the user that hold keys and are written as a whole: the configuration, `mcp.json`."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from kimi.domain.errors import ConfigError
from kimi.infrastructure.store.files.disk import create_file, make_private_directory, replace_file
from kimi.infrastructure.store.files.lock import hold_lock


def write_private_file(path: str, text: str) -> None:
    """Replace the file atomically, readable only for its owner.

    A link stays a link; missing directories are made. The caller holds `lock_for_change`. A lone surrogate (an argument
    that is not UTF-8) is written as the escape that JSON and TOML have for it. Blocks until the text is on the disk.
    Raises OSError; the old file is then unchanged.
    """
    target = os.path.realpath(path)
    make_private_directory(os.path.dirname(target))
    replace_file(target, _encode_text(text))


def create_private_file(path: str, text: str) -> None:
    """Create a file in the same way; a file that another program makes meanwhile stays unchanged."""
    target = os.path.realpath(path)
    make_private_directory(os.path.dirname(target))
    create_file(target, _encode_text(text))


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def lock_for_change(path: str) -> Generator[None, None, None]:
    """Hold the lock for reading a file and writing it again; other callers wait meanwhile. Blocks.

    Raises:
        ConfigError: another program does not stop changing the file.
        OSError: nothing can be written there.
    """
    target = os.path.realpath(path)
    make_private_directory(os.path.dirname(target))
    busy = ConfigError(f"Another program is changing {target}; try again when it is done.")
    with hold_lock(f"{target}.lock", busy):
        yield
