"""The title, kind and paths with which the client shows a tool call (acp spec 3.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolKind, ToolSpec

MAX_ARGUMENT_CHARS: Final = 50
MAX_TITLE_CHARS: Final = 80

_BLANK_RUN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class ToolPresentation:
    """How calls of one tool look.

    `title_key` and `path_key` name arguments; a path is shown relative to the work directory. `find_title_argument`
    returns the text of the title from the complete arguments, for tools without a single argument for it.
    """

    kind: ToolKind = "other"
    title_key: str | None = None
    path_key: str | None = None
    find_title_argument: Callable[[JsonObject], str | None] | None = None

    @property
    def wanted_keys(self) -> frozenset[str]:
        """The arguments to look for while they stream."""
        return frozenset(key for key in (self.title_key, self.path_key) if key)


def present_tool(spec: ToolSpec) -> ToolPresentation:
    """Return how calls of a tool look, from its spec."""
    title_key = None if spec.find_title is not None else spec.key_argument
    return ToolPresentation(spec.kind, title_key, spec.path_argument, spec.find_title)


UNKNOWN_PRESENTATION: Final = ToolPresentation()
"""How calls of an unknown tool look."""


def format_title(tool: str, argument: str | None) -> str:
    """Return `Tool: argument` in one line of at most 80 characters; only the tool while there is no argument."""
    name = _collapse_visibly(tool) or "Tool call"
    text = shorten_middle(_collapse_visibly(argument), MAX_ARGUMENT_CHARS) if argument else ""
    return shorten_middle(f"{name}: {text}" if text else name, MAX_TITLE_CHARS)


def collapse_blanks(text: str) -> str:
    """Replace every run of blanks and control characters by one space."""
    if text.isprintable() and "  " not in text:  # the only blank that is printable is the space
        return text.strip()
    return _BLANK_RUN.sub(" ", text).strip()


def _collapse_visibly(text: str) -> str:
    """Collapse blanks; what a screen would hide is escaped, because a title is part of what is approved."""
    line = collapse_blanks(text)
    if line.isprintable():
        return line
    from kimi.domain.tools.visible_text import reveal_hidden  # start-up time

    return reveal_hidden(line)


def shorten_middle(text: str, limit: int) -> str:
    """Cut `text` in the middle if it is longer than `limit`."""
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    return f"{text[: limit - 3 - tail]}...{text[-tail:]}"


def make_relative(path: str, work_dir: str) -> str:
    """Return a path as it is shown: relative to the work directory if it is inside of it."""
    inside = path.removeprefix(work_dir.rstrip("/\\") + os.sep)
    return inside or path


def make_absolute(path: str, work_dir: str) -> str | None:
    """Return a path as a location: absolute and without dots, links unresolved. None if it is not a path."""
    if not path or "\0" in path:
        return None
    if path == "~" or path.startswith(("~/", "~\\")):
        path = os.path.expanduser(path)
    return os.path.normpath(os.path.join(work_dir, path))
