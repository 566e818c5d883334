"""EnterPlanMode and ExitPlanMode: the user decides when planning begins and how it ends (tools spec 3.15)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, Field, field_validator

from kimi.application.ports import CallRejected, NewId, PreparedCall, ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import PlanDisplay
from kimi.domain.events.request import Question, QuestionAnswer, QuestionOption, QuestionRequest
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.params import build_schema, prepare_call

PLAN_MODE_UNSUPPORTED_ERROR = tool_error(
    "The connected client does not support plan mode. Do NOT call this tool again.", "Client unsupported"
)
MAX_PLAN_BYTES = 1024 * 1024
_RESERVED_BEGINNINGS = (
    *(
        "approv",
        "reject",
        "revis",
        "keep planning",
        "declin",
        "deny",
        "denied",
        "refus",
        "dismiss",
        "cancel",
        "abort",
        "do not",
    ),
    *(
        "ablehn",
        "verwerf",
        "abbrech",
        "rechaz",
        "rejet",
        "annul",
        "rifiut",
        "rejeit",
        "recus",
        "отклон",
        "отказ",
        "отмен",
    ),
    *("拒绝", "拒絕", "取消", "不同意", "修改", "继续计划", "拒否", "却下", "キャンセル", "거부", "취소"),
)
_RESERVED_WORDS = ("no", "nein", "non", "not", "don", "never", "нет", "不", "いいえ", "아니요")
"""How a person's refusal begins. An approach of such a name would look like one, and approve the plan."""
_APPROVES = "Approves the plan."
_ENTER_QUESTION = "Enter plan mode?"
_EXIT_QUESTION = "Approve this plan"

_ENTER_DESCRIPTION = """\
Ask the person to let you plan before you change anything. Call it at the start of work that is large, that can be \
done in several ways, or that would be hard to undo. Do not call it for small or clear tasks, or for questions.

In plan mode you may read and search, and write one file, the plan; everything else waits for ExitPlanMode."""

_EXIT_DESCRIPTION = """\
Show the finished plan to the person and ask for a decision. Call it only in plan mode, when the plan file holds the \
whole plan. Do not ask for approval in plain text.

When the plan offers several ways, give 2 or 3 of them as `options`, each with a short label; the person then picks \
one. The person may also send the plan back with remarks: work them in and call this tool again."""


@dataclass(frozen=True, slots=True)
class PlanModeControls:
    """What the two tools may read and do.

    `set_enabled` switches the mode; the client is notified when the step is over.
    """

    is_on: Callable[[], bool]
    set_enabled: Callable[[bool], None]
    plan_path: Callable[[], str]
    is_supported: Callable[[], bool]
    is_yolo: Callable[[], bool]
    is_user_absent: Callable[[], bool]
    new_id: NewId


class EnterPlanModeParams(BaseModel):
    """EnterPlanMode takes no arguments."""


class Approach(BaseModel):
    """One way to carry the plan out."""

    label: Annotated[str, Field(min_length=1, description="A few words.")]
    description: Annotated[str, Field(description="What is different about it.")] = ""


class ExitPlanModeParams(BaseModel):
    """The arguments of ExitPlanMode."""

    options: Annotated[
        list[Approach] | None, Field(max_length=3, description="2 or 3 ways to choose from, if there are any.")
    ] = None

    @field_validator("options")
    @classmethod
    def _check_labels(cls, options: list[Approach] | None) -> list[Approach] | None:
        from kimi.domain.tools.visible_text import fold_label  # start-up time

        labels = [fold_label(option.label) for option in options or ()]
        if len(set(labels)) < len(labels):
            raise ValueError("the labels must differ from each other")
        if taken := [option.label for option in options or () if _is_reserved(option.label)]:
            raise ValueError(f"the label {taken[0]!r} is reserved: name the approach, not the person's decision")
        return options


@cache
def _enter_spec() -> ToolSpec:
    return ToolSpec("EnterPlanMode", _ENTER_DESCRIPTION, build_schema(EnterPlanModeParams), kind="switch_mode")


@cache
def _exit_spec() -> ToolSpec:
    return ToolSpec("ExitPlanMode", _EXIT_DESCRIPTION, build_schema(ExitPlanModeParams), kind="switch_mode")


class EnterPlanModeTool:
    """The EnterPlanMode tool: asks the user, unless yolo mode or absence decides."""

    def __init__(self, mode: PlanModeControls) -> None:
        self._mode = mode

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _enter_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: `run` asks the user."""
        yield PreparedCall(lambda: self._enter(context))

    async def _enter(self, context: ToolCallContext) -> ToolReturnValue:
        mode = self._mode
        if mode.is_on():
            message = "Plan mode is active already. Write the plan, then call ExitPlanMode."
            return tool_error(message, "Already in plan mode")
        if not (mode.is_yolo() or mode.is_user_absent()):
            if not mode.is_supported():
                return PLAN_MODE_UNSUPPORTED_ERROR
            options = (QuestionOption("Yes", "Plan first"), QuestionOption("No", "Start right away"))
            if await _ask_choice(context, mode, Question(_ENTER_QUESTION, "Plan Mode", options)) != "Yes":
                return tool_ok(message="The user wants no plan mode. Go on without it.", brief="Plan mode declined")
        mode.set_enabled(True)
        return tool_ok(
            message=f"Plan mode is on. Write the plan to `{mode.plan_path()}`, then call ExitPlanMode.",
            brief="Plan mode on",
        )


class ExitPlanModeTool:
    """The ExitPlanMode tool: shows the plan and asks the user for a decision."""

    def __init__(self, mode: PlanModeControls) -> None:
        self._mode = mode

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _exit_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: `run` asks the user."""
        yield prepare_call(
            ExitPlanModeParams,
            arguments,
            lambda params: PreparedCall(lambda: self._exit(params.options or [], context)),
        )

    async def _exit(self, approaches: list[Approach], context: ToolCallContext) -> ToolReturnValue:
        mode = self._mode
        if not mode.is_on():
            return tool_error("Not in plan mode. ExitPlanMode is only available during plan mode.", "Not in plan mode")
        path = mode.plan_path()
        plan = await anyio.to_thread.run_sync(_read_plan, path)
        if not plan.strip():
            return tool_error(f"The plan file `{path}` is empty or missing. Write the plan first.", "No plan")
        if mode.is_user_absent():
            mode.set_enabled(False)
            message = "Nobody is there to ask: the plan counts as approved. Carry it out."
            return tool_ok(message=message, brief="Approved")
        if not mode.is_supported():
            return PLAN_MODE_UNSUPPORTED_ERROR
        await context.emit(PlanDisplay(plan, path))
        return await self._ask_for_decision(approaches, context)

    async def _ask_for_decision(self, approaches: list[Approach], context: ToolCallContext) -> ToolReturnValue:
        from kimi.domain.tools.visible_text import reveal_hidden_line  # start-up time

        shown = [
            Approach(label=reveal_hidden_line(one.label.strip()), description=f"{_APPROVES} {one.description}".strip())
            for one in approaches
        ]
        chosen = await _ask_choice(context, self._mode, _build_exit_question(shown))
        match chosen:
            case None:
                message = "User dismissed the question without answering. Plan mode stays on."
                return tool_ok(message=message, brief="User dismissed")
            case "Reject":
                raise CallRejected
            case "Reject and Exit":
                self._mode.set_enabled(False)
                raise CallRejected
            case "Approve":
                self._mode.set_enabled(False)
                message = "The user approved the plan. Plan mode is off: carry it out."
                return tool_ok(message=message, brief="Plan approved")
            case label if label in [approach.label for approach in shown]:
                self._mode.set_enabled(False)
                message = f"The user approved the plan with: {label}. Plan mode is off: carry it out."
                return tool_ok(message=message, brief=f"Plan approved: {label}")
            case remarks:
                message = f"The user wants the plan revised: {remarks}"
                return tool_ok(message=message, brief="Revise")


def _is_reserved(label: str) -> bool:
    """Return whether a label, as a reader sees it, is one of our own answers or begins like a refusal."""
    from kimi.domain.tools.visible_text import fold_label  # start-up time

    words = (folded := fold_label(label)).split()
    beginnings = tuple(map(fold_label, _RESERVED_BEGINNINGS))
    return not words or folded.startswith(beginnings) or words[0] in map(fold_label, _RESERVED_WORDS)


def _build_exit_question(approaches: list[Approach]) -> Question:
    if len(approaches) >= 2:
        first = tuple(QuestionOption(approach.label, approach.description) for approach in approaches)
    else:
        first = (QuestionOption("Approve", "Carry the plan out"),)
    refusals = (
        QuestionOption("Reject", "Stay in plan mode and stop"),
        QuestionOption("Reject and Exit", "Leave plan mode and stop"),
    )
    return Question(
        _EXIT_QUESTION, "Plan", (*first, *refusals), other_label="Revise", other_description="Say what to change"
    )


async def _ask_choice(context: ToolCallContext, mode: PlanModeControls, question: Question) -> str | None:
    """Ask a question; return the answer, or None if the question was dismissed."""
    answer = await context.ask(QuestionRequest(mode.new_id(), context.call_id, (question,)))
    if not isinstance(answer, QuestionAnswer):
        return None
    return next((value for value in answer.answers.values() if isinstance(value, str) and value.strip()), None)


def _read_plan(path: str) -> str:
    from kimi.domain.tools.visible_text import reveal_hidden  # start-up time

    try:
        with open(path, "rb") as file:
            plan = file.read(MAX_PLAN_BYTES).decode("utf-8", "replace")
            left_out = os.fstat(file.fileno()).st_size - MAX_PLAN_BYTES
    except FileNotFoundError:
        return ""
    note = f"\n\n[{left_out} more bytes of the plan are not shown; they are in {path}]" if left_out > 0 else ""
    return reveal_hidden(plan) + note
