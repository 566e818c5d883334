"""The story of a stored session for its page: turns with what was said, called and asked, subagents nested.

Read event by event; a turn is given out as soon as the next one begins, so that a long session needs little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kimi.domain.content.message import Message, ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, UserInput, VideoPart
from kimi.domain.events.event import (
    ApprovalResponse,
    BtwBegin,
    BtwEnd,
    CompactionBegin,
    Event,
    HookResolved,
    Notification,
    PlanDisplay,
    StatusUpdate,
    SteerInput,
    StepInterrupted,
    StepRetry,
    SubagentEvent,
    ToolResult,
    TurnBegin,
)
from kimi.domain.events.request import ApprovalRequest, QuestionRequest
from kimi.domain.tools.tool import ToolReturnValue

TimedEvent: TypeAlias = tuple[float, Event]
"""An event and the time when it was recorded, in Unix seconds; 0 if unknown."""


@dataclass(slots=True)
class Said:
    """Text of the model, its thinking, what the user wrote into a running turn, or the task of a subagent."""

    kind: Literal["text", "think", "steer", "task"]
    text: str


@dataclass(slots=True)
class Shown:
    """A medium, by its URL."""

    url: str


@dataclass(slots=True)
class Noted:
    """One line about what happened, with a longer text if there is one."""

    title: str
    text: str = ""


@dataclass(slots=True)
class Called:
    """A tool call with its result, the decisions about it, and what subagents did in it."""

    call: ToolCall
    arguments: str
    result: ToolReturnValue | None = None
    asked: list[str] = field(default_factory=list[str])
    inner: list[SubagentStory] = field(default_factory=list["SubagentStory"])


@dataclass(slots=True)
class SubagentStory:
    """What one subagent did."""

    agent_id: str
    subagent_type: str
    scope: Scope


Entry: TypeAlias = Said | Shown | Noted | Called | SubagentStory


@dataclass(slots=True)
class Figures:
    """The tokens of a turn or a session."""

    input: int = 0
    cached: int = 0
    output: int = 0

    def add(self, other: Figures) -> None:
        """Add the tokens of another part."""
        self.input += other.input
        self.cached += other.cached
        self.output += other.output


@dataclass(slots=True)
class Scope:
    """The entries of a turn or a subagent, with the calls among them by id."""

    entries: list[Entry] = field(default_factory=list[Entry])
    calls: dict[str, Called] = field(default_factory=dict[str, Called])
    subagents: dict[tuple[str, str], SubagentStory] = field(default_factory=dict[tuple[str, str], "SubagentStory"])
    questions: dict[str, tuple[Called | None, str]] = field(default_factory=dict[str, tuple["Called | None", str]])
    latest: Called | None = None


@dataclass(slots=True)
class Turn:
    """One prompt and everything until the next one. Number 0 is what came before the first prompt."""

    number: int
    prompt: UserInput = ""
    began_at: float = 0.0
    ended_at: float = 0.0
    figures: Figures = field(default_factory=Figures)
    scope: Scope = field(default_factory=Scope)


def tell_turns(events: Iterable[TimedEvent]) -> Iterator[Turn]:
    """Yield the turns of a session in their order."""
    turn = Turn(0)
    for at, event in events:
        if isinstance(event, TurnBegin):
            if turn.number or turn.scope.entries:
                yield turn
            turn = Turn(turn.number + 1, event.user_input, at, at)
            continue
        turn.ended_at = max(turn.ended_at, at)
        _add_event(event, turn.scope, turn.figures)
    if turn.number or turn.scope.entries:
        yield turn


def tell_message(message: Message) -> Iterator[Event]:
    """Yield the events that a message of the context stands for, where no events were recorded."""
    content = message.content
    parts = (TextPart(content),) if isinstance(content, str) else content
    if message.role == "tool":
        yield ToolResult(message.tool_call_id or "", ToolReturnValue(False, content, ""))
    elif message.role == "user":
        yield TurnBegin(content)
    else:
        yield from parts
        yield from message.tool_calls or ()


def _add_event(event: Event, scope: Scope, figures: Figures) -> None:
    match event:
        case TextPart(text):
            _add_text(scope, "text", text)
        case ThinkPart(think):
            _add_text(scope, "think", think)
        case ImagePart() | AudioPart() | VideoPart():
            scope.entries.append(Shown(find_url(event)))
        case ToolCall():
            called = Called(event, event.function.arguments or "")
            scope.calls[event.id] = scope.latest = called
            scope.entries.append(called)
        case ToolCallPart(arguments_part) if scope.latest is not None:
            scope.latest.arguments += arguments_part or ""
        case ToolResult(call_id, result):
            _add_result(scope, call_id, result)
        case SubagentEvent():
            _add_subagent_event(event, scope, figures)
        case StatusUpdate(token_usage=usage) if usage is not None:
            figures.add(Figures(usage.input, usage.input_cache_read, usage.output))
        case ApprovalRequest() | ApprovalResponse() | QuestionRequest():
            _add_question(event, scope)
        case _:
            noted = _note(event)
            if noted is not None:
                scope.entries.append(noted)


def find_url(part: ContentPart) -> str:
    """Return the URL of a medium; empty for text."""
    match part:
        case ImagePart(image_url=medium) | AudioPart(audio_url=medium) | VideoPart(video_url=medium):
            return medium.url
        case _:
            return ""


def _add_text(scope: Scope, kind: Literal["text", "think"], text: str) -> None:
    last = scope.entries[-1] if scope.entries else None
    if isinstance(last, Said) and last.kind == kind:
        last.text += text
    elif text:
        scope.entries.append(Said(kind, text))


def _add_result(scope: Scope, call_id: str, result: ToolReturnValue) -> None:
    called = scope.calls.get(call_id)
    if called is None:
        scope.entries.append(Noted("Result of an earlier call", result.message))
    else:
        called.result = result


def _add_subagent_event(event: SubagentEvent, scope: Scope, figures: Figures) -> None:
    key = (event.parent_tool_call_id or "", event.agent_id or "")
    story = scope.subagents.get(key)
    if story is None:
        story = scope.subagents[key] = SubagentStory(event.agent_id or "", event.subagent_type or "", Scope())
        parent = scope.calls.get(key[0])
        if parent is None:
            scope.entries.append(story)
        else:
            parent.inner.append(story)
    if isinstance(event.event, TurnBegin):
        story.scope.entries.append(Said("task", _join_text(event.event.user_input)))
    else:
        _add_event(event.event, story.scope, figures)


def _add_question(event: ApprovalRequest | ApprovalResponse | QuestionRequest, scope: Scope) -> None:
    match event:
        case ApprovalRequest(id=request_id, tool_call_id=call_id, description=description):
            scope.questions[request_id] = (scope.calls.get(call_id), description)
        case ApprovalResponse(request_id, response, feedback):
            called, description = scope.questions.pop(request_id, (None, ""))
            answer = f"{_ANSWERS[response]}{f': {feedback}' if feedback else ''}"
            if called is None:
                scope.entries.append(Noted(f"{answer} - {description}" if description else answer))
            else:
                called.asked.append(answer)
        case QuestionRequest(questions=questions):
            scope.entries.append(Noted("The user was asked", "\n".join(one.question for one in questions)))


_ANSWERS = {"approve": "Approved", "approve_for_session": "Approved for the session", "reject": "Rejected"}


def _note(event: Event) -> Entry | None:
    """Return the line for an event that has one."""
    match event:
        case SteerInput(user_input):
            return Said("steer", _join_text(user_input))
        case CompactionBegin():
            return Noted("The context was compacted.")
        case StepInterrupted():
            return Noted("The step was interrupted.")
        case StepRetry(error_type=error, status_code=status, next_attempt=attempt):
            return Noted(f"Attempt {attempt} after {error}{f' ({status})' if status else ''}.")
        case Notification(title=title, body=body):
            return Noted(title, body)
        case PlanDisplay(content, path):
            return Noted(f"Plan {path}", content)
        case BtwBegin(question=question):
            return Noted("A question beside the work", question)
        case BtwEnd(response=response, error=error):
            return Noted("Its answer", response or error or "")
        case HookResolved(event=name, action="block", reason=reason):
            return Noted(f"A hook of {name} blocked", reason)
        case _:
            return None


def _join_text(user_input: UserInput) -> str:
    if isinstance(user_input, str):
        return user_input
    return "\n".join(part.text if isinstance(part, TextPart) else f"[{part.type}]" for part in user_input)
