"""What a tool call is called in the client, of which kind it is, and which files it is about (acp spec 3.3)."""

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
    """How calls of one tool look. `title_key` and `path_key` name arguments; a path is shown relative to the work dir.

    `find_title_argument` returns the title's argument from the whole arguments where no single text says it.
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
    """How calls of a tool look, as its spec says."""
    title_key = None if spec.find_title is not None else spec.key_argument
    return ToolPresentation(spec.kind, title_key, spec.path_argument, spec.find_title)


UNKNOWN_PRESENTATION: Final = ToolPresentation()
"""Of a tool that nothing is known of."""


def format_title(tool: str, argument: str | None) -> str:
    """`Tool: argument` in one line of at most 80 characters; the tool alone while there is no argument."""
    name = collapse_blanks(tool) or "Tool call"
    text = shorten_middle(collapse_blanks(argument), MAX_ARGUMENT_CHARS) if argument else ""
    return shorten_middle(f"{name}: {text}" if text else name, MAX_TITLE_CHARS)


def collapse_blanks(text: str) -> str:
    """`text` with every run of blanks and control characters as one space."""
    return _BLANK_RUN.sub(" ", text).strip()


def shorten_middle(text: str, limit: int) -> str:
    """`text`, cut in its middle when it is longer than `limit`."""
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    return f"{text[: limit - 3 - tail]}...{text[-tail:]}"


def make_relative(path: str, work_dir: str) -> str:
    """A path as it is shown: without the work dir when it lies inside of it."""
    inside = path.removeprefix(work_dir.rstrip("/\\") + os.sep)
    return inside or path


def make_absolute(path: str, work_dir: str) -> str | None:
    """A path as a location: absolute, without dots, links as they are. None when it is no path."""
    if not path or "\0" in path:
        return None
    if path == "~" or path.startswith(("~/", "~\\")):
        path = os.path.expanduser(path)
    return os.path.normpath(os.path.join(work_dir, path))
