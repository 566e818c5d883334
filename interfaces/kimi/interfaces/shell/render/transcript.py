"""Translates events to blocks: final ones for the scrollback, open ones for the live view.

The translation is pure except for the clock. It keeps only the open blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kimi.domain.content.message import ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart, ThinkPart, UserInput, as_parts, join_text
from kimi.domain.events.event import (
    BtwBegin,
    BtwEnd,
    CompactionBegin,
    CompactionEnd,
    Event,
    HookResolved,
    MCPLoadingBegin,
    MCPLoadingEnd,
    Notification,
    PlanDisplay,
    SteerInput,
    StepBegin,
    StepInterrupted,
    StepRetry,
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.tools.tool import BriefBlock, DiffBlock, DisplayBlock, ToolReturnValue
from kimi.interfaces.shell.render.blocks import (
    Block,
    MarkdownBlock,
    Note,
    PlanBlock,
    ThinkingBlock,
    ThinkingSummaryBlock,
    ToolCallBlock,
    UserMessageBlock,
)
from kimi.interfaces.shell.render.markdown import MarkdownStream
from kimi.interfaces.shell.render.sanitize import fit_one_line
from kimi.interfaces.shell.render.status import make_relative

KEPT_ARGUMENTS = 4000
"""Characters of streamed arguments that are kept for the title of a call."""
KEPT_THINKING = 20_000
SHOWN_THINKING = 2000
_NESTED_SHOWN = 3
_COMMON_KEYS = ("command", "path", "file_path", "pattern", "query", "url", "description", "prompt", "question", "name")


@dataclass(slots=True)
class _OpenToolCall:
    name: str
    started: float
    arguments: list[str] = field(default_factory=list[str])
    size: int = 0
    nested: list[str] = field(default_factory=list[str])
    nested_total: int = 0

    def add(self, text: str) -> None:
        if self.size < KEPT_ARGUMENTS:
            self.arguments.append(text[:KEPT_ARGUMENTS])
            self.size += len(text)


class Transcript:
    """Translates the events of one conversation and keeps its open blocks.

    `key_argument` returns the argument that is the title of a tool's calls; `now` is the clock in seconds; paths below
    `root` are shown relative to it.
    """

    def __init__(self, key_argument: Callable[[str], str | None], now: Callable[[], float], root: str = "") -> None:
        self._root = root
        self._key_argument = key_argument
        self._now = now
        self._text = MarkdownStream()
        self._thinking: list[str] = []
        self._thinking_size = 0
        self._thinking_since = 0.0
        self._calls: dict[str, _OpenToolCall] = {}
        self._last_call: _OpenToolCall | None = None
        self.last_thought = ""
        """The thinking that was folded last; of a long one only the end."""
        self.activity = ""
        """The current activity beside text and calls, e.g. compaction; empty without one."""

    def handle_event(self, event: Event) -> list[Block]:
        """Handle the next event; return the blocks that are final now."""
        match event:
            case TextPart(text=text):
                return [*self._end_thinking(), *self._text.feed(text)]
            case ThinkPart(think=think):
                return self._add_thinking(think)
            case ToolCall():
                return self._open_tool_call(event)
            case ToolCallPart(arguments_part=part):
                if self._last_call is not None and part:
                    self._last_call.add(part)
                return []
            case ToolResult(tool_call_id=call_id, return_value=value):
                return [*self._end_text(), *self._close_tool_call(call_id, value)]
            case SubagentEvent():
                self._add_nested_call(event)
                return []
            case _:
                return self._handle_other_event(event)

    def list_open_blocks(self) -> list[Block]:
        """Return the open blocks as they look now, truncated to a bounded length."""
        found: list[Block] = []
        if self._thinking_size:
            found.append(ThinkingBlock("".join(self._thinking)[-SHOWN_THINKING:]))
        if (piece := self._text.peek_open_piece()) is not None:
            found.append(piece)
        return [*found, *(self._build_call_block(call) for call in self._calls.values())]

    def _handle_other_event(self, event: Event) -> list[Block]:
        match event:
            case TurnBegin(user_input=given):
                return [*self._end_all(), build_user_block(given)]
            case SteerInput(user_input=given):
                return [*self._end_text(), build_user_block(given, steer=True)]
            case StepBegin() | StepInterrupted():
                return self._end_text()
            case TurnEnd():
                return self._end_all()
            case StepRetry():
                return [*self._end_text(), Note(_format_retry(event), "warning")]
            case PlanDisplay(content=content, file_path=path):
                return [*self._end_text(), PlanBlock(content, path)]
            case Notification():
                return [*self._end_text(), _build_notification_note(event)]
            case HookResolved(action="block", reason=reason, event=name):
                return [*self._end_text(), Note(f"A {name} hook said no: {reason or 'no reason given'}", "warning")]
            case BtwBegin(question=question):
                return [*self._end_text(), Note(f"By the way: {question}")]
            case BtwEnd(response=response, error=error):
                return [MarkdownBlock(response) if response else Note(error or "No answer.", "warning")]
            case _:
                self._update_activity(event)
                return []

    def _update_activity(self, event: Event) -> None:
        match event:
            case CompactionBegin():
                self.activity = "Compacting the context"
            case MCPLoadingBegin():
                self.activity = "Waiting for MCP servers"
            case CompactionEnd() | MCPLoadingEnd():
                self.activity = ""
            case _:
                pass

    # --- text and thinking --------------------------------------------------------------------------------------

    def _add_thinking(self, text: str) -> list[Block]:
        done: list[Block] = []
        if not self._thinking_size:
            done = list(self._text.end())
            self._thinking_since = self._now()
        self._thinking.append(text)
        self._thinking_size += len(text)
        if len(self._thinking) > 400:  # the fold shows the beginning, the live view the end
            whole = "".join(self._thinking)
            self._thinking = [whole[:200] + whole[200:][-KEPT_THINKING:]]
        return done

    def _end_thinking(self) -> list[Block]:
        if not self._thinking_size:
            return []
        self.last_thought = "".join(self._thinking)
        text = fit_one_line(self.last_thought[:400], 160)
        self._thinking, self._thinking_size = [], 0
        return [ThinkingSummaryBlock(self._now() - self._thinking_since, text)] if text else []

    def _end_text(self) -> list[Block]:
        return [*self._end_thinking(), *self._text.end()]

    def _end_all(self) -> list[Block]:
        done = self._end_text()
        self._calls.clear()
        self._last_call = None
        self.activity = ""
        return done

    # --- calls --------------------------------------------------------------------------------------------------

    def _open_tool_call(self, call: ToolCall) -> list[Block]:
        done = self._end_text()
        opened = _OpenToolCall(call.function.name, self._now())
        opened.add(call.function.arguments or "")
        self._calls[call.id] = self._last_call = opened
        return done

    def _close_tool_call(self, call_id: str, value: ToolReturnValue) -> list[Block]:
        call = self._calls.pop(call_id, None)
        if call is None:
            return []
        shown = self._build_call_block(call)
        brief = next((block.text for block in value.display if isinstance(block, BriefBlock)), "")
        return [
            ToolCallBlock(
                shown.name,
                shown.title,
                "error" if value.is_error else "ok",
                self._now() - call.started,
                _build_outcome_text(brief, value),
                join_text(value.output, "\n"),
                tuple(self._make_path_relative(block) for block in value.display if not isinstance(block, BriefBlock)),
                nested_total=call.nested_total,
            )
        ]

    def _build_call_block(self, call: _OpenToolCall) -> ToolCallBlock:
        title = self._build_call_title("".join(call.arguments), call.name)
        nested = tuple(call.nested[-_NESTED_SHOWN:])
        took = self._now() - call.started
        return ToolCallBlock(call.name, title, seconds=took, nested=nested, nested_total=call.nested_total)

    def _build_call_title(self, arguments: str, tool: str) -> str:
        return make_relative(extract_call_title(arguments, self._key_argument(tool)), self._root)

    def _make_path_relative(self, block: DisplayBlock) -> DisplayBlock:
        return replace(block, path=make_relative(block.path, self._root)) if isinstance(block, DiffBlock) else block

    def _add_nested_call(self, event: SubagentEvent) -> None:
        call = self._calls.get(event.parent_tool_call_id or "")
        inner = event.event
        if call is None or not isinstance(inner, ToolCall):
            return
        title = self._build_call_title(inner.function.arguments or "", inner.function.name)
        call.nested = [*call.nested[-_NESTED_SHOWN:], f"{inner.function.name} {title}".strip()]
        call.nested_total += 1


def _build_outcome_text(brief: str, value: ToolReturnValue) -> str:
    """Return what is said of the outcome of a call; of one that was refused or did not begin, the reason, too."""
    if not brief:
        return value.message if value.is_error or not value.output else ""
    if not value.is_error or value.output or brief.startswith("Rejected"):  # the output says why, or the user knows
        return brief
    reason = value.message.partition(" Do not try it again")[0].strip().partition("\n")[0]
    return reason if brief.lower() in reason.lower() else f"{brief}: {reason}" if reason else brief


def build_user_block(user_input: UserInput, *, steer: bool = False) -> UserMessageBlock:
    """Return the user's message as a block."""
    media = sum(not isinstance(part, TextPart) for part in as_parts(user_input))
    return UserMessageBlock(join_text(user_input, ""), media, steer)


def extract_call_title(arguments: str, key: str | None) -> str:
    """Return the value of the argument `key`, by default of a common one. The JSON text may still be incomplete."""
    for name in (key,) if key else _COMMON_KEYS:
        match = re.search(rf'"{re.escape(name)}"\s*:\s*("(?:[^"\\]|\\.)*|\d+)', arguments[:KEPT_ARGUMENTS])
        if match is not None:
            return fit_one_line(_unescape_json(match[1].removeprefix('"')), 160)
    return ""


def _unescape_json(text: str) -> str:
    """Decode the inside of a JSON string, which may be incomplete."""
    simple = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        found = match[1]
        return chr(int(found[1:], 16)) if len(found) == 5 else simple.get(found, found)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text, flags=re.DOTALL)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two escapes may be one character


def _build_notification_note(event: Notification) -> Note:
    """Return a note with the title; the details of a task are for the model, and the user has /task."""
    about = f" ({event.source_id})" if event.category == "task" else f": {event.body}" if event.body else ""
    return Note(event.title + about, event.severity)


def _format_retry(event: StepRetry) -> str:
    status = f" {event.status_code}" if event.status_code else ""
    return (
        f"The model did not answer ({event.error_type}{status}); "
        f"attempt {event.next_attempt} of {event.max_attempts} in {event.wait_s:.0f} s. What it had said is void."
    )
