"""The files of a background task: one directory each, written by the program and by the task's worker.

Standard library only, because the worker starts with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, cast

SPEC_FILE: Final = "spec.json"
"""What is to run; written once, by the program."""
RUNTIME_FILE: Final = "runtime.json"
"""The state of the task; written by the worker, and by the program before the start and after the task was lost."""
CONTROL_FILE: Final = "control.json"
"""The requests of the program to the worker."""
CONSUMER_FILE: Final = "consumer.json"
"""The sinks to which the end was announced."""
HEARTBEAT_FILE: Final = "heartbeat"
"""A file whose modification time is the last sign of life of the worker."""
OUTPUT_FILE: Final = "output.log"

_FILE_MODE: Final = 0o600


def read_object(directory: str, name: str) -> dict[str, Any]:
    """Read the object in a file; empty if the file is missing or unreadable."""
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):  # the last: nested too deeply
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def write_object(directory: str, name: str, value: Mapping[str, Any]) -> None:
    """Replace a file as a whole, so that a reader sees the old or the new content. Raises OSError."""
    path = os.path.join(directory, name)
    fresh = f"{path}.{os.getpid()}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump(value, file)
    os.replace(fresh, path)


def open_output(directory: str) -> int:
    """Open the output of the task for appending. Raises OSError."""
    return os.open(os.path.join(directory, OUTPUT_FILE), os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE_MODE)


def touch_heartbeat(directory: str) -> None:
    """Update the heartbeat of the worker. Raises OSError."""
    path = os.path.join(directory, HEARTBEAT_FILE)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, _FILE_MODE))
    os.utime(path)
