"""THE event union: every event that a conversation sends to its driver, in order (wire spec 4.2 to 4.4).

Class and field names are the names on the wire; field order is the order there. `EVENT_TYPES` names the classes;
content parts share the name `ContentPart`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from kimi.domain.content.message import JsonObject, ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, UserInput, VideoPart
from kimi.domain.events.request import (
    ApprovalKind,
    ApprovalRequest,
    HookRequest,
    QuestionRequest,
    Request,
    ToolCallRequest,
)
from kimi.domain.tools.tool import ToolReturnValue
from kimi.domain.turn import TokenUsage, UsageFigures

if TYPE_CHECKING:
    from kimi.domain.tools.diff import ChangedText

McpServerState: TypeAlias = Literal["pending", "connecting", "connected", "failed", "unauthorized"]


@dataclass(frozen=True, slots=True)
class TurnBegin:
    """A turn starts with this input."""

    user_input: UserInput


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn that began has ended, whatever the outcome."""


@dataclass(frozen=True, slots=True)
class StepBegin:
    """Model call number `n` of the turn starts; counts from 1."""

    n: int


@dataclass(frozen=True, slots=True)
class StepInterrupted:
    """The step failed or was cancelled."""


@dataclass(frozen=True, slots=True)
class StepRetry:
    """An attempt of step `n` failed; the next one starts after `wait_s` seconds. Discard what the attempt streamed."""

    n: int
    next_attempt: int
    max_attempts: int
    wait_s: float
    error_type: str
    status_code: int | None


@dataclass(frozen=True, slots=True)
class SteerInput:
    """A message that was queued while the turn ran is now part of it."""

    user_input: UserInput


@dataclass(frozen=True, slots=True)
class CompactionBegin:
    """The context is being compacted."""


@dataclass(frozen=True, slots=True)
class CompactionEnd:
    """Compaction is over, successful or not."""


@dataclass(frozen=True, slots=True)
class McpServerStatus:
    """One MCP server: its state and the names of its tools as the model sees them."""

    name: str
    status: McpServerState
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class McpStatus:
    """All MCP servers of the conversation."""

    loading: bool
    connected: int
    total: int
    tools: int
    servers: tuple[McpServerStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """Figures that changed; None means unchanged. `context_usage` is a share of the window and may exceed 1.

    `token_usage` is that of one model call. `usage`, the totals, is for drivers: it is neither recorded nor part of the
    event that every client gets (wire spec 6.2).
    """

    context_usage: float | None = None
    context_tokens: int | None = None
    max_context_tokens: int | None = None
    token_usage: TokenUsage | None = None
    message_id: str | None = None
    plan_mode: bool | None = None
    mcp_status: McpStatus | None = None
    usage: UsageFigures | None = None


@dataclass(frozen=True, slots=True)
class MCPLoadingBegin:
    """The turn waits for MCP servers."""


@dataclass(frozen=True, slots=True)
class MCPLoadingEnd:
    """The turn no longer waits for MCP servers."""


@dataclass(frozen=True, slots=True)
class Notification:
    """Something happened outside of the turn; `created_at` is in Unix seconds."""

    id: str
    category: Literal["task", "agent", "system"]
    type: str
    source_kind: str
    source_id: str
    title: str
    body: str
    severity: Literal["info", "success", "warning", "error"]
    created_at: float
    payload: JsonObject


@dataclass(frozen=True, slots=True)
class PlanDisplay:
    """The plan that the next request asks the user about."""

    content: str
    file_path: str


@dataclass(frozen=True, slots=True)
class BtwBegin:
    """A side question was asked."""

    id: str
    question: str


@dataclass(frozen=True, slots=True)
class BtwEnd:
    """The side question was answered, or failed."""

    id: str
    response: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool call is done."""

    tool_call_id: str
    return_value: ToolReturnValue


@dataclass(frozen=True, slots=True)
class ApprovalResponse:
    """An approval request was resolved, by the client or by the program."""

    request_id: str
    response: ApprovalKind
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class SubagentEvent:
    """An event of a subagent, inside the call that started it."""

    parent_tool_call_id: str | None
    agent_id: str | None
    subagent_type: str | None
    event: Event


@dataclass(frozen=True, slots=True)
class HookTriggered:
    """A batch of hooks starts."""

    event: str
    target: str
    hook_count: int


@dataclass(frozen=True, slots=True)
class HookResolved:
    """The batch of hooks is done."""

    event: str
    target: str
    action: Literal["allow", "block"]
    reason: str
    duration_ms: int


# --- for drivers only ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileChangePlanned:
    """A call would change this file; sent before the user is asked about the call.

    `agent_id` names the subagent that makes the call, None the main agent.
    """

    agent_id: str | None
    tool_call_id: str
    changed: ChangedText


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The tool of a call begins to run. A call that is refused has none, nor one that is cancelled before."""

    agent_id: str | None
    tool_call_id: str


InternalEvent: TypeAlias = FileChangePlanned | ToolCallStarted

INTERNAL_TYPES = (FileChangePlanned, ToolCallStarted)
"""The classes of the union that stay inside the process: they are neither recorded nor sent on the wire.

They travel on the channel because only there their order against the call and the questions about it is certain.
"""

Event: TypeAlias = (
    TurnBegin
    | TurnEnd
    | StepBegin
    | StepInterrupted
    | StepRetry
    | SteerInput
    | CompactionBegin
    | CompactionEnd
    | StatusUpdate
    | MCPLoadingBegin
    | MCPLoadingEnd
    | Notification
    | PlanDisplay
    | BtwBegin
    | BtwEnd
    | ContentPart
    | ToolCall
    | ToolCallPart
    | ToolResult
    | ApprovalResponse
    | SubagentEvent
    | HookTriggered
    | HookResolved
    | Request
    | InternalEvent
)

_CONTENT_TYPES = (TextPart, ThinkPart, ImagePart, AudioPart, VideoPart)
_NAMED_TYPES = (
    TurnBegin, TurnEnd, StepBegin, StepInterrupted, StepRetry, SteerInput, CompactionBegin, CompactionEnd,
    StatusUpdate, MCPLoadingBegin, MCPLoadingEnd, Notification, PlanDisplay, BtwBegin, BtwEnd, ToolCall,
    ToolCallPart, ToolResult, ApprovalResponse, SubagentEvent, HookTriggered, HookResolved, ApprovalRequest,
    ToolCallRequest, QuestionRequest, HookRequest,
)  # fmt: skip

EVENT_TYPES: dict[type, str] = dict.fromkeys(_CONTENT_TYPES, "ContentPart") | {
    cls: cls.__name__ for cls in _NAMED_TYPES
}
"""The name of each event class on the wire, where internal events do not appear."""

REQUEST_TYPES = (ApprovalRequest, ToolCallRequest, QuestionRequest, HookRequest)
"""The event classes that are requests and wait for an answer."""
