"""Requests to the client of a conversation, and their answers (wire spec 4.4).

A request travels on the event stream like an event and carries an id; its answer comes back through the
`resolve_request` use-case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import DisplayBlock, ToolReturnValue

ApprovalKind: TypeAlias = Literal["approve", "approve_for_session", "reject"]
SourceKind: TypeAlias = Literal["foreground_turn", "background_agent"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request to approve a call.

    `sender` is the tool's name, `action` is the key that approval for the session remembers.
    """

    id: str
    tool_call_id: str
    sender: str
    action: str
    description: str
    source_kind: SourceKind | None = None
    source_id: str | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    source_description: str | None = None
    display: tuple[DisplayBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """A request to run an external tool.

    `id` is the id of the tool call; `arguments` is JSON text as the model sent it.
    """

    id: str
    name: str
    arguments: str | None


@dataclass(frozen=True, slots=True)
class QuestionOption:
    """One choice of a question."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One question with 2 to 4 options; the client adds a free-text choice of its own."""

    question: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False
    body: str = ""
    other_label: str = ""
    other_description: str = ""


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """A request to ask the user 1 to 4 questions."""

    id: str
    tool_call_id: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class HookRequest:
    """A hook that the client subscribed to has fired."""

    id: str
    subscription_id: str
    event: str
    target: str
    input_data: JsonObject


Request: TypeAlias = ApprovalRequest | ToolCallRequest | QuestionRequest | HookRequest


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The decision on an approval request; `feedback` explains a rejection to the model."""

    response: ApprovalKind
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallAnswer:
    """The result of an external tool call."""

    return_value: ToolReturnValue


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The chosen label(s) or the free text by question text; empty if the questions were dismissed."""

    answers: JsonObject


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The decision of a hook. `permission` is what a command says about the approval of a tool call, if anything."""

    action: Literal["allow", "block"] = "allow"
    reason: str = ""
    permission: Literal["allow", "ask"] | None = None


Answer: TypeAlias = ApprovalAnswer | ToolCallAnswer | QuestionAnswer | HookAnswer
