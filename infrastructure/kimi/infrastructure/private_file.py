"""Files of the user that hold keys and are written as a whole: the configuration, `mcp.json`."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress


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
