"""Removes sessions: by name, only the files that this program makes (R-56, R-59)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kimi.domain.errors import StoreFailed
from kimi.infrastructure.store.files.disk import remove_file
from kimi.infrastructure.store.layout import CONTEXT_FILE, LOCK_FILE, is_our_directory, is_our_file

_PLAN_SLUG: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""The names that plans get: anything else in a state file may lead elsewhere."""


def remove_session_files(directory: str) -> bool:
    """Remove the files of an empty session, except its lock.

    Returns False, with nothing removed, if the directory holds anything else.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    if not all(is_our_file(name) and os.path.isfile(os.path.join(directory, name)) for name in names):
        return False
    for name in _sort_context_last(names):
        remove_file(os.path.join(directory, name))
    return True


def remove_session(directory: str) -> None:
    """Remove all of a session except its lock and its directory.

    Raises StoreFailed, with nothing removed, if files of other programs are there or the directory is a link; OSError
    if something cannot be removed.
    """
    import shutil  # its archive modules cost start-up time, and sessions are seldom deleted

    names = os.listdir(directory)
    refuse_link(directory)
    if not all(_is_ours(directory, name) for name in names):
        raise StoreFailed(f"Session {directory} holds files of other programs; remove it by hand.")
    for name in _sort_context_last(names):
        path = os.path.join(directory, name)
        if is_our_file(name):
            os.unlink(path)
        else:
            shutil.rmtree(path)
    with suppress(FileNotFoundError):
        os.unlink(directory + ".jsonl")  # the oldest layout


def remove_plan(directory: str, slug: str | None) -> None:
    """Remove the plan file of a session from the directory of the plans, unless a link stands in its place."""
    if slug is None or not _PLAN_SLUG.fullmatch(slug):
        return
    path = os.path.join(directory, f"{slug}.md")
    if not os.path.islink(path) and not os.path.islink(directory):
        remove_file(path)


def refuse_link(directory: str) -> None:
    """Raise StoreFailed if a link stands in the place of the directory of a session."""
    if os.path.islink(directory):
        raise StoreFailed(f"Session {directory} is a link; remove it by hand.")


def _is_ours(directory: str, name: str) -> bool:
    path = os.path.join(directory, name)
    if os.path.islink(path):
        return is_our_file(name)
    return is_our_directory(name) if os.path.isdir(path) else is_our_file(name)


def _sort_context_last(names: Sequence[str]) -> list[str]:
    """Sort the context last: a session exists as long as its context does, so a crash half-way can be repeated."""
    return sorted((name for name in names if name != LOCK_FILE), key=lambda name: name == CONTEXT_FILE)
