"""The files of the page, which stand in a directory beside this module. Only names that are there are ever opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

_DIRECTORY: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page as it is sent."""

    content: bytes
    type: str
    tag: str
    stamp: tuple[int, int]


class PageFiles:
    """The files of the page by their names, which have slashes; read at their first use and after each change."""

    def __init__(self, directory: str = _DIRECTORY) -> None:
        self._paths = dict(_list_files(directory))
        self._loaded: dict[str, PageFile] = {}

    def find(self, name: str) -> PageFile | None:
        """Return the file of this name; None if there is none."""
        path = self._paths.get(name)
        if path is None:
            return None
        try:
            found = os.stat(path)
            stamp = (found.st_mtime_ns, found.st_size)
            loaded = self._loaded.get(name)
            if loaded is None or loaded.stamp != stamp:
                with open(path, "rb") as file:
                    content = file.read()
                tag = f'"{sha256(content).hexdigest()[:32]}"'
                loaded = PageFile(content, _TYPES[os.path.splitext(path)[1]], tag, stamp)
                self._loaded[name] = loaded
        except OSError:
            return None
        return loaded


def _list_files(directory: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            if not name.startswith(".") and os.path.splitext(name)[1] in _TYPES and not os.path.islink(path):
                found.append((os.path.relpath(path, directory).replace(os.sep, "/"), path))
    return found
