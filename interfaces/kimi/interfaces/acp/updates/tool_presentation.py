"""What a tool call is called in the client, of which kind it is, and which files it is about (acp spec 3.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from kimi.domain.content.message import JsonObject

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]  # fmt: skip

MAX_ARGUMENT_CHARS: Final = 50
MAX_TITLE_CHARS: Final = 80

_BLANK_RUN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class ToolPresentation:
    """How calls of one tool look. `title_key` and `path_key` name arguments; a path is shown relative to the work dir.

    `title_of` gives the title's argument from the whole arguments where no single string says it.
    """

    kind: ToolKind = "other"
    title_key: str | None = None
    path_key: str | None = None
    find_title_argument: Callable[[JsonObject], str | None] | None = None

    @property
    def wanted_keys(self) -> frozenset[str]:
        """The arguments to look for while they stream."""
        return frozenset(key for key in (self.title_key, self.path_key) if key)


def _describe_task_filter(arguments: JsonObject) -> str:
    return "active" if arguments.get("active_only", True) else "all"


def _find_first_question(arguments: JsonObject) -> str | None:
    questions: Any = arguments.get("questions")
    first: Any = cast("list[Any]", questions)[0] if isinstance(questions, list) and questions else None
    text: Any = cast("dict[str, Any]", first).get("question") if isinstance(first, dict) else None
    return text if isinstance(text, str) else None


BUILTIN_PRESENTATIONS: Mapping[str, ToolPresentation] = {
    "ReadFile": ToolPresentation("read", "path", "path"),
    "ReadMediaFile": ToolPresentation("read", "path", "path"),
    "WriteFile": ToolPresentation("edit", "path", "path"),
    "StrReplaceFile": ToolPresentation("edit", "path", "path"),
    "Glob": ToolPresentation("search", "pattern", "directory"),
    "Grep": ToolPresentation("search", "pattern", "path"),
    "Shell": ToolPresentation("execute", "command"),
    "FetchURL": ToolPresentation("fetch", "url"),
    "SearchWeb": ToolPresentation("fetch", "query"),
    "Think": ToolPresentation("think", "thought"),
    "SetTodoList": ToolPresentation("think"),
    "Agent": ToolPresentation("think", "description"),
    "Task": ToolPresentation("think", "description"),
    "AskUserQuestion": ToolPresentation("other", find_title_argument=_find_first_question),
    "EnterPlanMode": ToolPresentation("switch_mode"),
    "ExitPlanMode": ToolPresentation("switch_mode"),
    "TaskList": ToolPresentation("read", find_title_argument=_describe_task_filter),
    "TaskOutput": ToolPresentation("read", "task_id"),
    "TaskStop": ToolPresentation("execute", "task_id"),
    "SendDMail": ToolPresentation("other"),
}
"""The built-in tools."""

UNKNOWN_PRESENTATION: Final = ToolPresentation()


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
