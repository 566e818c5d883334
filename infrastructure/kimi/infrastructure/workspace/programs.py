"""Where programs are found: never in a directory that the search path names relatively, which a repository may fill."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program; None if there is none. A name with a directory in it is returned unchanged.

    Only the absolute directories of `PATH` are searched: another one would be looked for in the directory that the
    program runs in, which may be a repository of somebody else.
    """
    if os.path.dirname(name):
        return name
    directories = [entry for entry in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    found = shutil.which(name, path=os.pathsep.join(directories)) if directories else None
    # Windows looks into the current directory first, whatever the path says.
    return found if found is None or sys.platform != "win32" or _is_in(found, directories) else None


def _is_in(path: str, directories: list[str]) -> bool:
    folder = os.path.normcase(os.path.dirname(os.path.abspath(path)))
    return any(folder == os.path.normcase(os.path.abspath(directory)) for directory in directories)
