"""Files of the user that hold keys and are written as a whole: the configuration, `mcp.json`."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from kimi.domain.errors import ConfigError
from kimi.infrastructure.store.lock import FileLock

WAIT_S: Final = 5.0
"""For another program that changes the file."""


def write_private_file(path: str, text: str) -> None:
    """Replace the file atomically, readable for its owner only; a link stays a link, missing directories are made.

    A lone surrogate (an argument that is no UTF-8) becomes the escape that JSON and TOML have for it. Blocks until the
    text is on the disk. Raises OSError: the old file is as it was.
    """
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=directory, prefix=".kimi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)


@contextmanager
def sole_change(path: str) -> Generator[None, None, None]:
    """Between reading a file and writing it again: whoever else changes it in this way waits meanwhile. Blocks.

    Raises:
        ConfigError: somebody else does not stop changing it.
        OSError: nothing can be written there.
    """
    target = os.path.realpath(path)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    lock = FileLock(f"{target}.lock")
    end = time.monotonic() + WAIT_S
    while not lock.try_acquire():
        if time.monotonic() > end:
            raise ConfigError(f"Another program is changing {target}; try again when it is done.")
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()
