"""Adapters that only the shell needs: part of the composition root, like `tool_adapters`."""

from __future__ import annotations

from collections.abc import Sequence


def walk_files(directory: str) -> Sequence[str]:
    """The files below a directory that no ignore file leaves out, relative to it; at most 1000."""
    from kimi.infrastructure.file_listing import walk_files as walk

    return walk(directory)
