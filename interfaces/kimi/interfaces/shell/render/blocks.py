"""The blocks that the shell shows, as values. Every block is printed once and then belongs to the scrollback.

Texts in blocks are not sanitized; `painter` and `plain_blocks` neutralize them when they draw them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi.domain.tools.tool import DisplayBlock

NoteLevel: TypeAlias = Literal["info", "success", "warning", "error"]
ToolCallState: TypeAlias = Literal["running", "ok", "error"]


@dataclass(frozen=True, slots=True)
class UserMessageBlock:
    """The user's message; `steer` marks one that was sent into a running turn."""

    text: str
    media: int = 0
    steer: bool = False


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A piece of the assistant's Markdown that can be drawn by itself."""

    text: str


@dataclass(frozen=True, slots=True)
class MarkdownCodeBlock:
    """Lines of a code block of the assistant. With `is_continuation` it began in an earlier block."""

    language: str
    text: str
    is_continuation: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingSummaryBlock:
    """Finished thinking, folded: how long it took in seconds, and its first words."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """Thinking that is still running, with its latest text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBlock:
    """A tool call with its title and, once it has ended, its result. `nested` lists the calls of its subagent."""

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
    """The action that an approval is about, in full."""

    display: tuple[DisplayBlock, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlanBlock:
    """A plan that the user is asked to approve."""

    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Note:
    """A message of the program itself."""

    text: str
    level: NoteLevel = "info"


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """The output of a local command, or a listing; lines are kept as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The welcome panel at the start of a session."""

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
