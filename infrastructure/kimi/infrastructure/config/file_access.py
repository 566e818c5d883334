"""Who can read and write the files of the user, for `kimi doctor`."""

from __future__ import annotations

import os
import stat
import tempfile


def try_write(directory: str) -> None:
    """Create the directory if it is missing, and write a file into it that is gone then. Raises OSError."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(b"sessions need some room" * 1000)  # an empty file can be made on a full disk, too


def is_readable_by_others(path: str) -> bool:
    """Whether other users can read the file; False when there is no such file, or no such thing on this system."""
    try:
        return os.name != "nt" and bool(stat.S_IMODE(os.stat(path).st_mode) & 0o077)
    except OSError:
        return False
