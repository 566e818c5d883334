"""What the shell shows, as values: every block is printed once and then belongs to the scrollback.

Texts in blocks are as they came; `paint` and `plain` make them harmless when they draw them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi.domain.tools.tool import DisplayBlock

NoteLevel: TypeAlias = Literal["info", "success", "warning", "error"]
ToolCallState: TypeAlias = Literal["running", "ok", "error"]


@dataclass(frozen=True, slots=True)
class UserMessageBlock:
    """What the person sent; `steer` for a message into a running turn."""

    text: str
    media: int = 0
    steer: bool = False


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A piece of the assistant's Markdown that can be drawn by itself."""

    text: str


@dataclass(frozen=True, slots=True)
class MarkdownCodeBlock:
    """Lines of a code block of the assistant, which may go on in the next block; `goes_on`: it began in the last."""

    language: str
    text: str
    is_continuation: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingSummaryBlock:
    """Thinking that is over, folded: how long it took in seconds, and what it began with."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """Thinking that goes on: its latest text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBlock:
    """A tool call: what it is about and, when it is over, how it went. `nested` is what a subagent does."""

    name: str
    title: str
    state: ToolCallState = "running"
    seconds: float = 0.0
    brief: str = ""
    output: str = ""
    display: tuple[DisplayBlock, ...] = ()
    nested: tuple[str, ...] = ()
    nested_total: int = 0


@dataclass(frozen=True, slots=True)
class ApprovalPreview:
    """What an approval is about, at full length."""

    display: tuple[DisplayBlock, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlanBlock:
    """A plan that the person is about to be asked about."""

    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence of the program itself."""

    text: str
    level: NoteLevel = "info"


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """What a local command wrote, or a listing: lines as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first thing on the screen."""

    version: str
    directory: str
    session: str
    model: str
    notes: tuple[Note, ...] = ()


Block: TypeAlias = (
    UserMessageBlock
    | MarkdownBlock
    | MarkdownCodeBlock
    | ThinkingSummaryBlock
    | ThinkingBlock
    | ToolCallBlock
    | ApprovalPreview
    | PlanBlock
    | Note
    | OutputBlock
    | Welcome
)
