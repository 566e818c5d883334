"""The project in the system prompt: a tree of the work directory and its AGENTS.md files (runtime spec 6.2)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence

from kimi.application.agents.system_prompt import ProjectText
from kimi.domain.tools.tool import escape_host_tags
from kimi.infrastructure.definitions.project_files import PromptFiles, list_dirs_from_project_root, name_refusal

logger = logging.getLogger(__name__)

AGENTS_BYTES = 32 * 1024
ROOT_ENTRIES = 30
CHILD_ENTRIES = 10
_FILE_SEPARATOR = "\n\n"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def load_project_text(work_dir: str, additional_dirs: Sequence[str], files: PromptFiles) -> ProjectText:
    """Read the texts about the project; what cannot be read is left out."""
    return ProjectText(
        work_dir=work_dir,
        listing=format_directory_tree(work_dir),
        instructions=load_agents_text(work_dir, files),
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


def load_agents_text(work_dir: str, files: PromptFiles) -> str:
    """Join the AGENTS.md files from the project root to the work directory, each after a comment that names it.

    The text has at most 32 KiB, comments included; the deepest files get their share first. A file that must not
    become part of a prompt is left out, with a line in the log.
    """
    room = AGENTS_BYTES
    granted: list[str] = []
    for path, text in reversed(list(_read_agents_files(work_dir, files))):
        heading = f"<!-- From: {_format_name(path)} -->\n"
        if len(heading.encode()) >= room:
            break
        granted.append(_truncate_bytes(heading + text, room))
        room -= len(granted[-1].encode()) + len(_FILE_SEPARATOR)
    return _FILE_SEPARATOR.join(reversed(granted))


def _read_agents_files(work_dir: str, files: PromptFiles) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file that says something."""
    for directory in list_dirs_from_project_root(work_dir):
        kept = os.path.join(directory, ".kimi", "AGENTS.md")
        upper, lower = (os.path.join(directory, name) for name in ("AGENTS.md", "agents.md"))
        for path in (kept, upper if os.path.lexists(upper) else lower):
            if os.path.lexists(path) and (text := _read_agents_file(path, files).strip()):
                yield path, text


def _read_agents_file(path: str, files: PromptFiles) -> str:
    try:
        found = files.read_bytes(path, AGENTS_BYTES, files.real_project, cut=True)
    except (OSError, ValueError) as error:
        logger.warning("%s is left out of the prompt: %s", path, name_refusal(error))
        return ""
    return found.decode("utf-8", "replace")


def _truncate_bytes(text: str, max_bytes: int) -> str:
    return text.encode()[: max(max_bytes, 0)].decode("utf-8", "ignore")
