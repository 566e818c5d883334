"""What the methods of the wire take and return, and how requests are answered (wire spec 3, 4.4).

The type checker holds the code that builds a result to these types, and `kimi schema` prints them. The start of a
server does not import this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from kimi.application.sessions.negotiate_initialize import RejectedTool
from kimi.domain.command import CommandInfo
from kimi.domain.content.parts import UserInput
from kimi.domain.events.request import ApprovalKind
from kimi.domain.hook import HookEvent
from kimi.domain.tools.tool import TodoItem, ToolReturnValue


class ClientIdentity(TypedDict):
    """Who the client is."""

    name: str
    version: NotRequired[str | None]


class ExternalToolDefinition(TypedDict):
    """A tool that the client runs; `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class OfferedCapabilities(TypedDict):
    """What the client can do; all false where nothing is said."""

    supports_question: NotRequired[bool]
    supports_plan_mode: NotRequired[bool]
    supports_usage: NotRequired[bool]


class HookSubscriptionEntry(TypedDict):
    """A hook that the client wants to be asked about; `timeout` is in seconds."""

    id: str
    event: str
    matcher: NotRequired[str]
    timeout: NotRequired[int]


class InitializeCall(TypedDict):
    """The parameters of `initialize`."""

    protocol_version: str
    client: NotRequired[ClientIdentity | None]
    external_tools: NotRequired[Sequence[ExternalToolDefinition] | None]
    capabilities: NotRequired[OfferedCapabilities | None]
    hooks: NotRequired[Sequence[HookSubscriptionEntry] | None]
    slash_commands: NotRequired[bool | None]


class ServerIdentity(TypedDict):
    """Who the server is."""

    name: str
    version: str


class OfferedTools(TypedDict):
    """What became of the tools that the client offers."""

    accepted: Sequence[str]
    rejected: Sequence[RejectedTool]


class ServerHooks(TypedDict):
    """The hook events that there are, and how many hooks each one has."""

    supported_events: Sequence[HookEvent]
    configured: Mapping[str, int]


class ServerCapabilities(TypedDict):
    """What the server can do."""

    supports_question: Literal[True]


class InitializeResult(TypedDict):
    """The result of `initialize`; `external_tools` only if tools were offered."""

    protocol_version: str
    server: ServerIdentity
    slash_commands: Sequence[CommandInfo]
    external_tools: NotRequired[OfferedTools]
    hooks: ServerHooks
    capabilities: ServerCapabilities


class InputCall(TypedDict):
    """The parameters of `prompt` and `steer`."""

    user_input: UserInput


class PromptResult(TypedDict):
    """The result of `prompt`; `steps` only when the limit of steps was reached."""

    status: Literal["finished", "cancelled", "max_steps_reached"]
    steps: NotRequired[int]


class SteerResult(TypedDict):
    """The result of `steer`: the message is queued."""

    status: Literal["steered"]


class PlanModeCall(TypedDict):
    """The parameters of `set_plan_mode`."""

    enabled: bool


class PlanModeResult(TypedDict):
    """The result of `set_plan_mode`."""

    status: Literal["ok"]
    plan_mode: bool


class ReplayResult(TypedDict):
    """The result of `replay`: how many messages were sent."""

    status: Literal["finished", "cancelled"]
    events: int
    requests: int


class EmptyResult(TypedDict):
    """A result without members."""


class ApprovalResult(TypedDict):
    """The answer to an ApprovalRequest."""

    request_id: NotRequired[str | None]
    response: ApprovalKind
    feedback: NotRequired[str]


class ToolCallResult(TypedDict):
    """The answer to a ToolCallRequest; the id of the message says which."""

    tool_call_id: NotRequired[str]
    return_value: ToolReturnValue


class QuestionResult(TypedDict):
    """The answer to a QuestionRequest: label or free text by question; empty if the questions were dismissed."""

    request_id: NotRequired[str | None]
    answers: Mapping[str, Any]


class HookResult(TypedDict):
    """The answer to a HookRequest."""

    request_id: NotRequired[str | None]
    action: NotRequired[Literal["allow", "block"]]
    reason: NotRequired[str]


class MoneyAmount(TypedDict):
    """A cost."""

    amount: float
    currency: str


class UsageOfCalls(TypedDict):
    """The tokens of several model calls, and their cost where it is known."""

    input_other: int
    output: int
    input_cache_read: int
    input_cache_creation: int
    cost: MoneyAmount | None


class UsageTotals(TypedDict):
    """What the turn and the session have used."""

    turn: UsageOfCalls
    session: UsageOfCalls


CALLS: Final[Mapping[str, tuple[type | None, type]]] = {
    "initialize": (InitializeCall, InitializeResult),
    "prompt": (InputCall, PromptResult),
    "cancel": (None, EmptyResult),
    "replay": (None, ReplayResult),
    "steer": (InputCall, SteerResult),
    "set_plan_mode": (PlanModeCall, PlanModeResult),
}
"""The types of the parameters (None: there are none) and of the result of each method."""

ANSWERS: Final[Mapping[str, type]] = {
    "ApprovalRequest": ApprovalResult,
    "ToolCallRequest": ToolCallResult,
    "QuestionRequest": QuestionResult,
    "HookRequest": HookResult,
}
"""The type of the answer to each request of the server."""

REQUIRED_WHEN_READ: Final[Mapping[tuple[type, str], bool]] = {
    (TodoItem, "status"): True,
    (ToolReturnValue, "message"): False,
}
"""Whether a client must write these members, where the default in the type says otherwise (wire spec 4.7)."""
