"""The project in the system prompt: a tree of the work directory and its AGENTS.md files (runtime spec 6.2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from kimi.application.agents.system_prompt import ProjectText
from kimi.domain.tools.tool import escape_host_tags

AGENTS_BYTES = 32 * 1024
ROOT_ENTRIES = 30
CHILD_ENTRIES = 10
_FILE_SEPARATOR = "\n\n"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def load_project_text(work_dir: str, additional_dirs: Sequence[str]) -> ProjectText:
    """Read the texts about the project; what cannot be read is left out."""
    return ProjectText(
        work_dir=work_dir,
        listing=format_directory_tree(work_dir),
        instructions=load_agents_text(work_dir),
        additional_dirs=[(path, format_directory_tree(path)) for path in additional_dirs],
    )


def format_directory_tree(directory: str) -> str:
    """Format two levels of a directory, directories first, with a count of what was left out."""
    return "\n".join(_format_level(directory, ROOT_ENTRIES, nested=True))


def _format_level(directory: str, limit: int, *, nested: bool) -> Iterator[str]:
    entries = _sorted_entries(directory)
    for entry in entries[:limit]:
        is_dir = entry.is_dir(follow_symlinks=False)
        yield _format_name(entry.name) + "/" * is_dir
        if is_dir and nested:
            yield from (f"  {line}" for line in _format_level(entry.path, CHILD_ENTRIES, nested=False))
    if len(entries) > limit:
        yield f"... and {len(entries) - limit} more"


def _format_name(name: str) -> str:
    """Format a file name on one line, with host tags escaped: its author may have meant it to look like a message."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return escape_host_tags(_CONTROL.sub("\ufffd", text))


def _sorted_entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
    except OSError:
        return []


def load_agents_text(work_dir: str) -> str:
    """Join the AGENTS.md files from the project root to the work directory, each after a comment that names it.

    The text has at most 32 KiB, comments included; the deepest files get their share first.
    """
    room = AGENTS_BYTES
    granted: list[str] = []
    for path in reversed(list(_find_agents_files(work_dir))):
        heading = f"<!-- From: {_format_name(path)} -->\n"
        if len(heading.encode()) >= room:
            break
        granted.append(_truncate_bytes(heading + _read_agents_file(path).strip(), room))
        room -= len(granted[-1].encode()) + len(_FILE_SEPARATOR)
    return _FILE_SEPARATOR.join(reversed(granted))


def _find_agents_files(work_dir: str) -> Iterator[str]:
    for directory in list_dirs_from_project_root(work_dir):
        names = [os.path.join(".kimi", "AGENTS.md")]
        names.append("AGENTS.md" if os.path.isfile(os.path.join(directory, "AGENTS.md")) else "agents.md")
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and _read_agents_file(path).strip():
                yield path


def list_dirs_from_project_root(work_dir: str) -> list[str]:
    """Return the directories from the nearest one with `.git` down to the work directory; without one, only that."""
    chain: list[str] = []
    directory = work_dir
    while True:
        chain.append(directory)
        if os.path.exists(os.path.join(directory, ".git")):
            return chain[::-1]
        parent = os.path.dirname(directory)
        if parent == directory:
            return [work_dir]
        directory = parent


def _read_agents_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(AGENTS_BYTES + 1)
    except OSError:
        return ""


def _truncate_bytes(text: str, max_bytes: int) -> str:
    return text.encode()[: max(max_bytes, 0)].decode("utf-8", "ignore")
