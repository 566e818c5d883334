"""One tool call on its way through the client: announced, titled while it streams, begun, finished (acp spec 3.3)."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal, TypeAlias, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import DisplayBlock, ToolReturnValue
from kimi.interfaces.acp.updates.partial_arguments import LONGEST, ArgumentScanner
from kimi.interfaces.acp.updates.result_content import (
    Json,
    first_changed_line,
    raw_output,
    result_content,
    text_content,
)
from kimi.interfaces.acp.updates.tool_presentation import Face, absolute, relative, title

PAUSE_S: Final = 0.1
"""Between two updates of a call whose arguments stream."""
GRACE_S: Final = 0.25
"""After which a complete call that nobody was asked about counts as begun, where nobody says so."""
MAX_HITS: Final = 20
"""Files with hits that a search names."""

CallKey: TypeAlias = tuple["str | None", str]
"""The agent that made a call (None: the main one) and the model's id of the call."""

_HIT = re.compile(r"(.+?):(\d+):")


class CallState:
    """A call that is not finished. Every method gives the updates to send; after `finish` and `fail` none follow."""

    def __init__(self, call_id: str, tool: str, face: Face, work_dir: str, *, shown_as: str, meta: JsonObject) -> None:
        self.id = call_id
        self.tool = tool
        self.status: Literal["pending", "in_progress"] = "pending"
        self.raw_input: Any = None
        self.is_complete = False
        """Are the arguments whole?"""
        self.asks = 0
        """Questions about it that wait for an answer; it has not begun while there are any."""
        self.parent: CallKey | None = None
        """The call that the agent of this one runs in."""
        self.begins_at: float | None = None
        """When it counts as begun if nobody says so; 0 until the clock was told."""
        self.stands_in = False
        """Is all that is heard of the call that somebody asks about it, as of those of agents in the background?"""
        self.is_refused = False
        """Did the person say no?"""
        self.content: list[Json] = []
        """What stays in front of whatever the result shows: a plan, a terminal."""
        self.has_terminal = False
        self._shown_as = shown_as
        self._face = face
        self._meta = meta
        self._work_dir = work_dir
        self._scanner = ArgumentScanner(face.wanted)
        self._pieces: list[str] = []
        self._title = ""
        self._locations: list[Json] = []
        self._is_stale = False
        self._next_at = 0.0

    def announce(self, arguments: str | None) -> Json:
        """The first update, with what the beginning of the arguments tells."""
        self.take(arguments)
        self._title, self._locations = self._titled(), self._located()
        shape: Json = {
            "sessionUpdate": "tool_call",
            "toolCallId": self.id,
            "title": self._title,
            "kind": self._face.kind,
            "status": self.status,
        }
        if self._locations:
            shape["locations"] = self._locations
        self._is_stale = False
        return shape | {"_meta": {"kimi": self._meta}}

    def take(self, piece: str | None) -> None:
        """The next piece of the arguments."""
        if not piece:
            return
        self._pieces.append(piece)
        scanner = self._scanner
        known = len(scanner.values)
        scanner.feed(piece)
        self._is_stale = self._is_stale or len(scanner.values) != known or self._title_grows()

    def _title_grows(self) -> bool:
        growing = self._scanner.growing_key
        return growing is not None and growing == self._face.title_key and self._scanner.length < LONGEST

    @property
    def due_at(self) -> float | None:
        """When the next update of title and locations may go; None when there is nothing new."""
        return self._next_at if self._is_stale and not self.is_complete else None

    def due(self, now: float) -> list[Json]:
        """What is new of title and locations."""
        self._is_stale = False
        news = self._news()
        if not news:
            return []
        self._next_at = now + PAUSE_S
        return [self._update(news)]

    def complete(self) -> list[Json]:
        """The arguments are whole."""
        if self.is_complete:
            return []
        self.is_complete = True
        self.raw_input = parsed("".join(self._pieces))
        self._pieces.clear()
        news = self._news()
        return [self._update(news)] if news else []

    def hold(self, *, may_run: bool) -> list[Json]:
        """Somebody is asked about it. With `may_run` the answer decides whether it runs at all."""
        updates = self.complete()
        self.asks += 1
        if may_run and self.status == "in_progress" and self.asks == 1 and not self.has_terminal:
            self.status = "pending"
            updates.append(self._update({"status": "pending"}))
        return updates

    def begin(self, before: list[Json] | None = None) -> list[Json]:
        """It runs from now on; what `before` says goes with it."""
        updates = self.complete() if before is None else before
        self.begins_at = None
        if self.status == "in_progress":
            return updates
        self.status = "in_progress"
        shape = {"status": "in_progress", "rawInput": self.raw_input}
        return [updates[0] | shape] if updates else [self._update(shape)]  # one update instead of two

    def show(self, shown: list[Json], locations: list[Json]) -> list[Json]:
        """More content, which stays."""
        self.content += shown
        shape: Json = {"content": self.content}
        if locations:
            self._locations = shape["locations"] = locations
        return [self._update(shape)]

    def finish(self, result: ToolReturnValue, changed: ChangedText | None = None) -> list[Json]:
        """Done: its result."""
        shape: Json = {"status": "failed" if result.is_error else "completed"}
        shown = result_content(result, self._work_dir, file=self.path, changed=changed)
        if self.tool == "SetTodoList" and not result.is_error:
            shown = []
        if not self.has_terminal and (shown or self.content):
            shape["content"] = self.content + shown
        locations = self._final_locations(result)
        if locations and locations != self._locations:
            shape["locations"] = locations
        before = self.complete()
        if not result.is_error or self._may_have_run():
            before = self.begin(before)
        if self.status == "pending":
            shape["rawInput"] = self.raw_input
        return [*before, self._update(shape | {"rawOutput": raw_output(result)})]

    def _may_have_run(self) -> bool:
        """No when somebody refused it, or its arguments were cut off or wrong."""
        return not (self.is_refused or self.asks or self._is_raw())

    def fail(self, text: str) -> list[Json]:
        """It ends without a result."""
        shape: Json = {"status": "failed"}
        if not self.has_terminal:
            shape["content"] = [*self.content, text_content(text)]
        return [*self.complete(), self._update(shape)]

    def let_go(self, text: str) -> list[Json]:
        """It runs from now on where nobody hears of its end."""
        return [*self.begin(), self._update({"status": "completed", "content": [*self.content, text_content(text)]})]

    def asked(self, shown: list[Json], display: tuple[DisplayBlock, ...]) -> Json:
        """The call inside of a permission request, which some clients show alone."""
        line = first_changed_line(display) if self._face.kind == "edit" else None
        locations = [self._locations[0] | {"line": line}] if line and len(self._locations) == 1 else self._locations
        shape: Json = {"toolCallId": self.id, "title": self._title, "kind": self._face.kind, "status": self.status}
        if self.content or shown:
            shape["content"] = self.content + shown
        if locations:
            shape["locations"] = locations
        return shape | {"rawInput": self.raw_input, "_meta": {"kimi": self._meta}}

    @property
    def path(self) -> str | None:
        """The file that the call is about, absolute."""
        return str(self._locations[0]["path"]) if self._locations else None

    def _update(self, shape: Json) -> Json:
        return {"sessionUpdate": "tool_call_update", "toolCallId": self.id, **shape}

    def _news(self) -> Json:
        """What changed of title and locations, which is now told."""
        news: Json = {}
        if (new_title := self._titled()) != self._title:
            self._title = news["title"] = new_title
        if (locations := self._located()) != self._locations and locations:
            self._locations = news["locations"] = locations
        return news

    def _titled(self) -> str:
        argument = self._title_argument()
        if argument is not None and self._face.title_key == self._face.path_key:
            argument = relative(argument, self._work_dir)
        return title(self._shown_as, argument)

    def _title_argument(self) -> str | None:
        arguments = self._arguments()
        if arguments is not None and self._face.title_of is not None:
            return self._face.title_of(arguments)
        key = self._face.title_key
        if key is None:
            return None
        value: Any = (arguments if arguments is not None else self._scanner.values).get(key)
        if value is None and arguments is None and (growing := self._scanner.growing) and growing[0] == key:
            # A path that is still being written would name another file.
            value = None if key == self._face.path_key else growing[1]
        if not isinstance(value, str):
            return None
        return _first_line(value) if self.tool == "Think" else value

    def _located(self) -> list[Json]:
        key = self._face.path_key
        if key is None:
            return self._locations
        arguments = self._arguments()
        value: Any = (arguments if arguments is not None else self._scanner.values).get(key)
        path = absolute(value, self._work_dir) if isinstance(value, str) else None
        if path is None:
            return []
        line: Any = (arguments or {}).get("line_offset")
        is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
        return [{"path": path, "line": line} if is_line and self.tool == "ReadFile" else {"path": path}]

    def _final_locations(self, result: ToolReturnValue) -> list[Json]:
        if result.is_error or (not self._locations and self.tool != "Grep"):
            return []
        if self._face.kind == "edit" and (line := first_changed_line(result.display)) is not None:
            return [{"path": self._locations[0]["path"], "line": line}]
        if self.tool == "Grep" and isinstance(result.output, str):
            return self._hits(result.output)
        return []

    def _hits(self, output: str) -> list[Json]:
        mode = (self._arguments() or {}).get("output_mode", "files_with_matches")
        found: dict[str, Json] = {}
        for line in output.split("\n", 4096)[:4096]:
            hit = _HIT.match(line) if mode == "content" else None
            name = hit.group(1) if hit else line if mode == "files_with_matches" else line.rpartition(":")[0]
            if mode == "content" and hit is None:
                continue
            path = absolute(name, self._work_dir)
            if path is not None and path not in found:
                found[path] = {"path": path, "line": int(hit.group(2))} if hit else {"path": path}
            if len(found) == MAX_HITS:
                break
        return list(found.values())

    def _arguments(self) -> JsonObject | None:
        if not self.is_complete:
            return None
        found: object = self.raw_input
        if self._is_raw():
            return self._scanner.values
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def _is_raw(self) -> bool:
        """Are the arguments no JSON?"""
        found: object = self.raw_input
        return isinstance(found, dict) and "_raw" in cast("dict[str, Any]", found)


def parsed(text: str) -> Any:
    """The arguments as the domain reads them; `{"_raw": text}` for what is no JSON."""
    try:
        value: Any = json.loads(text, strict=False) if text.strip() else {}
    except (ValueError, RecursionError):
        return {"_raw": text}
    return {} if value is None else value


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
