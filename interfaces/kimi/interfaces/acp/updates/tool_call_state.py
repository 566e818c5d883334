"""The updates of one tool call: announced, titled while it streams, begun, finished (acp spec 3.3)."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import DisplayBlock, ToolReturnValue
from kimi.interfaces.acp.updates.argument_scanner import LENIENT_DECODER, MAX_STRING_CHARS, ArgumentScanner
from kimi.interfaces.acp.updates.result_content import (
    JsonDict,
    build_raw_output,
    build_result_content,
    find_first_changed_line,
    text_content,
)
from kimi.interfaces.acp.updates.tool_presentation import ToolPresentation, format_title, make_absolute, make_relative

UPDATE_INTERVAL_S: Final = 0.1
"""The minimum time between two updates of a call whose arguments stream, in seconds."""
MAX_HITS: Final = 20
"""How many files with hits a search names."""

CallKey: TypeAlias = tuple["str | None", str]
"""The agent that made a call (None: the main one) and the model's id of the call."""

_HIT_PATTERN = re.compile(r"(.+?):(\d+):")


class ToolCallState:
    """A call that is not finished. Methods return the updates to send; after `finish` or `fail` there are no more."""

    def __init__(
        self,
        call_id: str,
        tool: str,
        presentation: ToolPresentation,
        work_dir: str,
        *,
        display_name: str,
        meta: JsonObject,
    ) -> None:
        self.id = call_id
        self.tool = tool
        self.status: Literal["pending", "in_progress"] = "pending"
        self.raw_input: Any = None
        self.has_all_arguments = False
        """Whether the arguments are complete."""
        self.open_requests = 0
        """How many requests about the call are pending; it does not begin while there are any."""
        self.parent_call: CallKey | None = None
        """The call inside of which the agent of this call runs."""
        self.is_placeholder = False
        """Whether the call is known only from an approval request, as are the calls of background agents."""
        self.is_rejected = False
        """Whether the user rejected the call."""
        self.leading_content: list[JsonDict] = []
        """The content that stays before that of the result: a plan, a terminal."""
        self.has_terminal = False
        self._display_name = display_name
        self._presentation = presentation
        self._meta = meta
        self._work_dir = work_dir
        self._scanner = ArgumentScanner(presentation.wanted_keys)
        self._pieces: list[str] = []
        self._title = ""
        self._locations: list[JsonDict] = []
        self._has_news = False
        self._next_update_at = 0.0

    def announce(self, arguments: str | None, *, is_recorded: bool = False) -> JsonDict:
        """Return the first update, with title and locations as far as the beginning of the arguments shows them.

        With `is_recorded` they are usually all there, and need not be scanned as they are while they stream.
        """
        if not (is_recorded and arguments and self._take_whole(arguments)):
            self.feed_arguments(arguments)
        self._title, self._locations = self._build_title(), self._find_locations()
        shape: JsonDict = {
            "sessionUpdate": "tool_call",
            "toolCallId": self.id,
            "title": self._title,
            "kind": self._presentation.kind,
            "status": self.status,
        }
        if self._locations:
            shape["locations"] = self._locations
        shape["_meta"] = {"kimi": self._meta}
        self._has_news = False
        return shape

    def _take_whole(self, arguments: str) -> bool:
        """Take the arguments if they are a whole object. Return whether they are."""
        found = parse_arguments(arguments)
        if not isinstance(found, dict) or "_raw" in found:
            return False
        self.raw_input, self.has_all_arguments = cast("JsonObject", found), True
        return True

    def feed_arguments(self, piece: str | None) -> None:
        """Add the next piece of the arguments."""
        if not piece:
            return
        self._pieces.append(piece)
        scanner = self._scanner
        known = len(scanner.values)
        scanner.feed(piece)
        self._has_news = self._has_news or len(scanner.values) != known or self._is_title_streaming()

    def _is_title_streaming(self) -> bool:
        growing = self._scanner.streaming_key
        return (
            growing is not None
            and growing == self._presentation.title_key
            and self._scanner.streaming_length < MAX_STRING_CHARS
        )

    @property
    def next_update_at(self) -> float | None:
        """When the next update of title and locations may be sent; None if there is nothing new."""
        return self._next_update_at if self._has_news and not self.has_all_arguments else None

    def collect_due_updates(self, now: float) -> list[JsonDict]:
        """Return an update with the changes of title and locations, if any."""
        self._has_news = False
        news = self._take_changes()
        if not news:
            return []
        self._next_update_at = now + UPDATE_INTERVAL_S
        return [self._build_update(news)]

    def complete_arguments(self) -> list[JsonDict]:
        """Record that the arguments are complete."""
        if self.has_all_arguments:
            return []
        self.has_all_arguments = True
        self.raw_input = parse_arguments("".join(self._pieces))
        self._pieces.clear()
        news = self._take_changes()
        return [self._build_update(news)] if news else []

    def add_request(self, *, may_run: bool) -> list[JsonDict]:
        """Record a pending request about the call. With `may_run` the answer decides whether the call runs."""
        updates = self.complete_arguments()
        self.open_requests += 1
        if may_run and self.status == "in_progress" and self.open_requests == 1 and not self.has_terminal:
            self.status = "pending"
            updates.append(self._build_update({"status": "pending"}))
        return updates

    def begin(self, pending_updates: list[JsonDict] | None = None) -> list[JsonDict]:
        """Show that the call runs; the first of `pending_updates` is merged into that update."""
        updates = self.complete_arguments() if pending_updates is None else pending_updates
        if self.status == "in_progress":
            return updates
        self.status = "in_progress"
        shape = {"status": "in_progress", "rawInput": self.raw_input}
        return [updates[0] | shape] if updates else [self._build_update(shape)]  # one update instead of two

    def add_content(self, contents: list[JsonDict], locations: list[JsonDict]) -> list[JsonDict]:
        """Add content that stays before that of the result."""
        self.leading_content += contents
        shape: JsonDict = {"content": self.leading_content}
        if locations:
            self._locations = shape["locations"] = locations
        return [self._build_update(shape)]

    def finish(self, result: ToolReturnValue, changed: ChangedText | None = None) -> list[JsonDict]:
        """Show the result; the call is done."""
        shape: JsonDict = {"status": "failed" if result.is_error else "completed"}
        shown = build_result_content(result, self._work_dir, file=self.path, changed=changed)
        if self.tool == "SetTodoList" and not result.is_error:
            shown = []
        if not self.has_terminal and (shown or self.leading_content):
            shape["content"] = self.leading_content + shown
        locations = self._find_final_locations(result)
        if locations and locations != self._locations:
            shape["locations"] = locations
        before = self.complete_arguments()
        if not result.is_error or self._may_have_run():
            before = self.begin(before)
        if self.status == "pending":
            shape["rawInput"] = self.raw_input
        return [*before, self._build_update(shape | {"rawOutput": build_raw_output(result)})]

    def _may_have_run(self) -> bool:
        """Whether the tool may have run: not if the call was refused, or its arguments were cut off or invalid."""
        return not (self.is_rejected or self.open_requests or self._has_invalid_arguments())

    def fail(self, text: str) -> list[JsonDict]:
        """End the call without a result."""
        shape: JsonDict = {"status": "failed"}
        if not self.has_terminal:
            shape["content"] = [*self.leading_content, text_content(text)]
        return [*self.complete_arguments(), self._build_update(shape)]

    def continue_in_background(self, text: str) -> list[JsonDict]:
        """Complete the call in the client: it runs in the background, and no event reports its end."""
        return [
            *self.begin(),
            self._build_update({"status": "completed", "content": [*self.leading_content, text_content(text)]}),
        ]

    def describe_for_request(self, shown: list[JsonDict], display: tuple[DisplayBlock, ...]) -> JsonDict:
        """Return the call for a permission request, complete because some clients show only the request."""
        line = find_first_changed_line(display) if self._presentation.kind == "edit" else None
        locations = [self._locations[0] | {"line": line}] if line and len(self._locations) == 1 else self._locations
        shape: JsonDict = {
            "toolCallId": self.id,
            "title": self._title,
            "kind": self._presentation.kind,
            "status": self.status,
        }
        if self.leading_content or shown:
            shape["content"] = self.leading_content + shown
        if locations:
            shape["locations"] = locations
        return shape | {"rawInput": self.raw_input, "_meta": {"kimi": self._meta}}

    @property
    def path(self) -> str | None:
        """The file that the call is about, absolute."""
        return str(self._locations[0]["path"]) if self._locations else None

    def _build_update(self, shape: JsonDict) -> JsonDict:
        return {"sessionUpdate": "tool_call_update", "toolCallId": self.id, **shape}

    def _take_changes(self) -> JsonDict:
        """Return the changes of title and locations since the last update, and count them as sent."""
        news: JsonDict = {}
        if (new_title := self._build_title()) != self._title:
            self._title = news["title"] = new_title
        if (locations := self._find_locations()) != self._locations and locations:
            self._locations = news["locations"] = locations
        return news

    def _build_title(self) -> str:
        argument = self._find_title_argument()
        if argument is not None and self._presentation.title_key == self._presentation.path_key:
            argument = make_relative(argument, self._work_dir)
        return format_title(self._display_name, argument)

    def _find_title_argument(self) -> str | None:
        arguments = self._find_arguments()
        if arguments is not None and self._presentation.find_title_argument is not None:
            return self._presentation.find_title_argument(arguments)
        key = self._presentation.title_key
        if key is None:
            return None
        value: Any = (arguments if arguments is not None else self._scanner.values).get(key)
        if value is None and arguments is None and (growing := self._scanner.streaming_value) and growing[0] == key:
            # The beginning of a path would name another file.
            value = None if key == self._presentation.path_key else growing[1]
        if not isinstance(value, str):
            return None
        return _first_line(value) if self.tool == "Think" else value

    def _find_locations(self) -> list[JsonDict]:
        key = self._presentation.path_key
        if key is None:
            return self._locations
        arguments = self._find_arguments()
        value: Any = (arguments if arguments is not None else self._scanner.values).get(key)
        path = make_absolute(value, self._work_dir) if isinstance(value, str) else None
        if path is None:
            return []
        line: Any = (arguments or {}).get("line_offset")
        is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
        return [{"path": path, "line": line} if is_line and self.tool == "ReadFile" else {"path": path}]

    def _find_final_locations(self, result: ToolReturnValue) -> list[JsonDict]:
        if result.is_error or (not self._locations and self.tool != "Grep"):
            return []
        if self._presentation.kind == "edit" and (line := find_first_changed_line(result.display)) is not None:
            return [{"path": self._locations[0]["path"], "line": line}]
        if self.tool == "Grep" and isinstance(result.output, str):
            return self._parse_hits(result.output)
        return []

    def _parse_hits(self, output: str) -> list[JsonDict]:
        mode = (self._find_arguments() or {}).get("output_mode", "files_with_matches")
        found: dict[str, JsonDict] = {}
        for line in output.split("\n", 4096)[:4096]:
            hit = _HIT_PATTERN.match(line) if mode == "content" else None
            name = hit.group(1) if hit else line if mode == "files_with_matches" else line.rpartition(":")[0]
            if mode == "content" and hit is None:
                continue
            path = make_absolute(name, self._work_dir)
            if path is not None and path not in found:
                found[path] = {"path": path, "line": int(hit.group(2))} if hit else {"path": path}
            if len(found) == MAX_HITS:
                break
        return list(found.values())

    def _find_arguments(self) -> JsonObject | None:
        if not self.has_all_arguments:
            return None
        found: object = self.raw_input
        if self._has_invalid_arguments():
            return self._scanner.values
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def _has_invalid_arguments(self) -> bool:
        """Whether the arguments are not JSON."""
        found: object = self.raw_input
        return isinstance(found, dict) and "_raw" in cast("dict[str, Any]", found)


def parse_arguments(text: str) -> Any:
    """Parse the arguments as the domain does; return `{"_raw": text}` for text that is not JSON."""
    try:
        value: Any = LENIENT_DECODER.decode(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return {"_raw": text}
    return {} if value is None else value


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
