"""What a tool call is called in the client, of which kind it is, and which files it is about (acp spec 3.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from kimi.domain.content.message import JsonObject

Kind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]  # fmt: skip

ARGUMENT_CHARS: Final = 50
TITLE_CHARS: Final = 80

_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Face:
    """How calls of one tool look. `title_key` and `path_key` name arguments; a path is shown relative to the work dir.

    `title_of` gives the title's argument from the whole arguments where no single string says it.
    """

    kind: Kind = "other"
    title_key: str | None = None
    path_key: str | None = None
    title_of: Callable[[JsonObject], str | None] | None = None

    @property
    def wanted(self) -> frozenset[str]:
        """The arguments to look for while they stream."""
        return frozenset(key for key in (self.title_key, self.path_key) if key)


def _which_tasks(arguments: JsonObject) -> str:
    return "active" if arguments.get("active_only", True) else "all"


def _first_question(arguments: JsonObject) -> str | None:
    questions: Any = arguments.get("questions")
    first: Any = cast("list[Any]", questions)[0] if isinstance(questions, list) and questions else None
    text: Any = cast("dict[str, Any]", first).get("question") if isinstance(first, dict) else None
    return text if isinstance(text, str) else None


FACES: Mapping[str, Face] = {
    "ReadFile": Face("read", "path", "path"),
    "ReadMediaFile": Face("read", "path", "path"),
    "WriteFile": Face("edit", "path", "path"),
    "StrReplaceFile": Face("edit", "path", "path"),
    "Glob": Face("search", "pattern", "directory"),
    "Grep": Face("search", "pattern", "path"),
    "Shell": Face("execute", "command"),
    "FetchURL": Face("fetch", "url"),
    "SearchWeb": Face("fetch", "query"),
    "Think": Face("think", "thought"),
    "SetTodoList": Face("think"),
    "Agent": Face("think", "description"),
    "Task": Face("think", "description"),
    "AskUserQuestion": Face("other", title_of=_first_question),
    "EnterPlanMode": Face("switch_mode"),
    "ExitPlanMode": Face("switch_mode"),
    "TaskList": Face("read", title_of=_which_tasks),
    "TaskOutput": Face("read", "task_id"),
    "TaskStop": Face("execute", "task_id"),
    "SendDMail": Face("other"),
}
"""The built-in tools."""

UNKNOWN_TOOL: Final = Face()


def title(tool: str, argument: str | None) -> str:
    """`Tool: argument` in one line of at most 80 characters; the tool alone while there is no argument."""
    name = one_line(tool) or "Tool call"
    text = shortened(one_line(argument), ARGUMENT_CHARS) if argument else ""
    return shortened(f"{name}: {text}" if text else name, TITLE_CHARS)


def one_line(text: str) -> str:
    """`text` with every run of blanks and control characters as one space."""
    return _BLANKS.sub(" ", text).strip()


def shortened(text: str, limit: int) -> str:
    """`text`, cut in its middle when it is longer than `limit`."""
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    return f"{text[: limit - 3 - tail]}...{text[-tail:]}"


def relative(path: str, work_dir: str) -> str:
    """A path as it is shown: without the work dir when it lies inside of it."""
    inside = path.removeprefix(work_dir.rstrip("/\\") + os.sep)
    return inside or path


def absolute(path: str, work_dir: str) -> str | None:
    """A path as a location: absolute, without dots, links as they are. None when it is no path."""
    if not path or "\0" in path:
        return None
    if path == "~" or path.startswith(("~/", "~\\")):
        path = os.path.expanduser(path)
    return os.path.normpath(os.path.join(work_dir, path))
