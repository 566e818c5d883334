"""What `open_agent` takes: options, the functions that answer requests, and the errors of this face."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from kimi.application.ports import ChatModel, OpenModel, SessionStore, Tool, Workspace
from kimi.application.settings.flags import SandboxMode
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.errors import KimiError
from kimi.domain.events.request import (
    ApprovalAnswer,
    ApprovalKind,
    ApprovalRequest,
    HookAnswer,
    QuestionRequest,
)
from kimi.domain.hook import CommandHook, FailureVerdict, HookEvent
from kimi.domain.turn import TurnStatus

if TYPE_CHECKING:
    from kimi.domain.content.message import JsonObject

ApprovalVerdict: TypeAlias = ApprovalAnswer | ApprovalKind | bool
"""True approves once, False rejects and ends the turn; an `ApprovalAnswer` can tell the model why."""

ApproveFunction: TypeAlias = Callable[[ApprovalRequest], ApprovalVerdict | Awaitable[ApprovalVerdict]]
QuestionFunction: TypeAlias = Callable[[QuestionRequest], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
HookVerdict: TypeAlias = HookAnswer | bool | str | None
"""False or a text blocks, the text is the reason; True and None allow."""

HookFunction: TypeAlias = Callable[["JsonObject"], HookVerdict | Awaitable[HookVerdict]]
ModelOption: TypeAlias = str | ModelSettings | ChatModel | OpenModel
ToolOption: TypeAlias = Tool | Callable[..., object]

REJECTION = "Nobody can approve this here. Go on without it, or say what is needed."


@dataclass(frozen=True, slots=True)
class PythonHook:
    """A function that is told of an event of a turn and may block it.

    `matcher` is a regular expression that is searched in the event's target, such as the name of a tool. `on_failure`
    is what it means that the function raised.
    """

    event: HookEvent
    run: HookFunction
    matcher: str = ""
    timeout_s: int = 30
    on_failure: FailureVerdict = "allow"


class AgentOptions(TypedDict, total=False):
    """The options of `open_agent` that have names. What is left out is as the user has configured it."""

    tools: Sequence[ToolOption]
    """Functions, and objects that are a `Tool`."""
    approve: Literal["reject", "all", "events"] | ApproveFunction
    """Who answers questions for approval: nobody (`reject`, the default), yes to all that no rule forbids (`all`),
    whoever reads the events (`events`, by `Agent.resolve`), or a function."""
    answer_questions: Literal["events"] | QuestionFunction
    """Who answers the model's own questions. Without it the model has no tool for questions."""
    store: SessionStore
    workspace: Workspace
    hooks: Sequence[CommandHook | PythonHook]
    """Hooks beside the configured ones."""
    session: str
    """The session to go on with; a new one of this id if there is none."""
    continue_last: bool
    """Go on with the last session of the work directory."""
    must_exist: bool
    """Raise UnknownSession instead of beginning a session."""
    settings: Settings
    """The whole configuration, with its work directory. No file is read then, and the options below are no use."""
    config: str | Path
    """A configuration as TOML or JSON, or the path of one, in place of that of the user."""
    share_dir: str | Path
    """Where configuration and sessions are, in place of `~/.kimi`."""
    agent: str
    """The name of a built-in agent."""
    agent_file: str | Path
    thinking: bool
    mcp_configs: Sequence[str | Path | Mapping[str, Any]]
    """MCP servers as in `mcp.json`: JSON, a path, or an object."""
    skills_dirs: Sequence[str | Path]
    additional_dirs: Sequence[str | Path]
    plan: bool
    sandbox: SandboxMode
    """What commands are confined to."""
    slash_commands: bool
    """Whether a prompt that begins with `/` may be a command; False for prompts that others wrote."""
    max_steps: int
    max_attempts: int
    ralph_iterations: int


class NoAnswer(KimiError):
    """A turn ended without an answer: it was cancelled, or took as many steps as it may."""

    def __init__(self, message: str, status: TurnStatus) -> None:
        super().__init__(message)
        self.status = status


class InvalidAnswer(KimiError):
    """The answer has not the type that was asked for, not even after one correction. `text` is the last answer."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def check_option_names(function: str, given: Iterable[str], options: type[Any]) -> None:
    """Check the names of keyword arguments against a TypedDict, which Python itself does not. Raises TypeError."""
    known: frozenset[str] = options.__optional_keys__
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            advice = f"; did you mean '{close[0]}'?" if close else ""
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{advice}")
