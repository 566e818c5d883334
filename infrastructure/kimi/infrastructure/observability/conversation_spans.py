"""The events of a conversation as spans of turns, steps, tool calls and approvals (runtime spec 2.9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from kimi.domain.content.message import ToolCall
from kimi.domain.events.event import (
    ApprovalResponse,
    Event,
    StepBegin,
    StepInterrupted,
    StepRetry,
    SubagentEvent,
    ToolCallStarted,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import ApprovalRequest
from kimi.infrastructure.observability.instruments import Instruments, log_failures

_CANCELLED: Final = "cancelled"
_OBSERVED: Final = frozenset(
    (
        TurnBegin,
        TurnEnd,
        StepBegin,
        StepInterrupted,
        StepRetry,
        ToolCall,
        ToolCallStarted,
        ToolResult,
        ApprovalRequest,
        ApprovalResponse,
        SubagentEvent,
    )
)


@dataclass(slots=True)
class _OpenSpan:
    """A span that has not ended, and the attributes of its measurement."""

    span: Span
    labels: dict[str, AttributeValue]
    began: float = field(default_factory=perf_counter)


@dataclass(slots=True)
class _TracedTurn:
    """An open turn of an agent, with what is open inside. `outside` is where its span is, `around` the flow's turn."""

    turn: _OpenSpan
    outside: Context
    around: _TracedTurn | None
    step: Span | None = None
    named: dict[str, str] = field(default_factory=dict[str, str])
    """The tools of calls that the model still writes, or that have not begun."""
    calls: dict[str, _OpenSpan] = field(default_factory=dict[str, _OpenSpan])
    approvals: dict[str, _OpenSpan] = field(default_factory=dict[str, _OpenSpan])


class ConversationSpans:
    """Observes the events of one conversation. No text of a prompt, an answer, a call or a result is in a span.

    An event is observed in the task that emits it. So the step becomes the current span there, and the spans of model
    calls and of instrumented libraries are its children.
    """

    def __init__(self, instruments: Instruments, session_id: str, agent_name: str) -> None:
        self._instruments = instruments
        self._common: dict[str, AttributeValue] = {"gen_ai.conversation.id": session_id}
        self._agent_name = agent_name
        self._turns: dict[str | None, _TracedTurn] = {}

    def observe(self, event: Event) -> None:
        """See `kimi.application.ports.ObserveEvent`."""
        # First what nearly every event needs: a text comes in thousands of pieces.
        if type(event) in _OBSERVED:
            with log_failures():
                self._handle(event)

    def close(self) -> None:
        """End all spans that are still open. Idempotent. Raises nothing."""
        for agent_id in list(self._turns):
            while agent_id in self._turns:
                with log_failures():
                    self._end_turn(agent_id)

    def _handle(self, event: Event) -> None:
        if isinstance(event, SubagentEvent):
            self._handle_of_agent(event.event, event.agent_id, event)
        elif isinstance(event, ApprovalRequest | ToolCallStarted):
            self._handle_of_agent(event, event.agent_id, None)  # a subagent's, too, are not wrapped
        else:
            self._handle_of_agent(event, None, None)

    def _handle_of_agent(self, event: Event, agent_id: str | None, origin: SubagentEvent | None) -> None:
        if isinstance(event, TurnBegin):
            self._begin_turn(agent_id, origin)
        elif isinstance(event, ApprovalResponse):
            self._take_answer(event)
        elif (turn := self._turns.get(agent_id)) is not None:
            self._handle_in_turn(event, agent_id, turn)

    def _handle_in_turn(self, event: Event, agent_id: str | None, turn: _TracedTurn) -> None:
        match event:
            case TurnEnd():
                self._end_turn(agent_id)
                context.attach(turn.outside)
            case StepBegin():
                self._begin_step(event, turn)
            case StepInterrupted() if turn.step is not None:
                turn.step.set_status(Status(StatusCode.ERROR))
            case StepRetry():
                turn.named.clear()  # what the failed attempt has streamed is discarded
            case ToolCall():
                turn.named[event.id] = event.function.name
            case ToolCallStarted():
                self._begin_call(event.tool_call_id, turn)
            case ToolResult():
                self._begin_call(event.tool_call_id, turn)  # one that was refused has not begun
                if (call := turn.calls.pop(event.tool_call_id, None)) is not None:
                    self._end_call(call, "tool_error" if event.return_value.is_error else None)
            case ApprovalRequest():
                self._ask(event, turn)
            case _:
                pass

    def _begin_turn(self, agent_id: str | None, origin: SubagentEvent | None) -> None:
        around = self._turns.get(agent_id)
        outside = context.get_current()
        if around is not None and around.step is not None:
            # Only the turn of a flow has turns inside, and no step before them: the end of this one was lost.
            outside = around.outside
            self._end_turn(agent_id)
            around = None
        name = (origin.subagent_type or "subagent") if origin else self._agent_name
        labels: dict[str, AttributeValue] = {"gen_ai.agent.name": self._instruments.bound_name(name)}
        attributes: dict[str, AttributeValue] = {
            **self._common,
            "gen_ai.agent.name": name,
            "gen_ai.operation.name": "invoke_agent",
        }
        if agent_id is not None:
            attributes["gen_ai.agent.id"] = agent_id
        within = outside
        if origin is not None and (main := self._turns.get(None)) and origin.parent_tool_call_id in main.calls:
            within = trace.set_span_in_context(main.calls[origin.parent_tool_call_id].span, outside)
        span = self._instruments.tracer.start_span(f"invoke_agent {name}", within, attributes=attributes)
        self._turns[agent_id] = _TracedTurn(_OpenSpan(span, labels), outside, around)
        context.attach(trace.set_span_in_context(span, outside))

    def _begin_step(self, event: StepBegin, turn: _TracedTurn) -> None:
        if turn.step is not None:
            turn.step.end()
        within = trace.set_span_in_context(turn.turn.span, turn.outside)
        turn.step = self._instruments.tracer.start_span(f"step {event.n}", within, attributes={"kimi.step": event.n})
        context.attach(trace.set_span_in_context(turn.step, turn.outside))

    def _begin_call(self, call_id: str, turn: _TracedTurn) -> None:
        """Begin the span of a call when its arguments are complete: what the model takes to write them is no part."""
        if (name := turn.named.pop(call_id, None)) is None:
            return
        labels: dict[str, AttributeValue] = {"gen_ai.tool.name": self._instruments.bound_name(name)}
        span = self._instruments.tracer.start_span(
            f"execute_tool {name}",
            trace.set_span_in_context(turn.step or turn.turn.span, turn.outside),
            attributes={
                **self._common,
                "gen_ai.tool.name": name,
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call_id,
            },
        )
        turn.calls[call_id] = _OpenSpan(span, labels)

    def _end_call(self, call: _OpenSpan, error: str | None) -> None:
        labels = call.labels if error is None else {**call.labels, "error.type": error}
        if error is not None:
            call.span.set_attribute("error.type", error)
            call.span.set_status(Status(StatusCode.ERROR))
        call.span.end()
        self._instruments.tool_duration.record(perf_counter() - call.began, labels)

    def _ask(self, event: ApprovalRequest, turn: _TracedTurn) -> None:
        self._begin_call(event.tool_call_id, turn)
        call = turn.calls.get(event.tool_call_id)
        within = None if call is None else trace.set_span_in_context(call.span, turn.outside)
        labels: dict[str, AttributeValue] = {"gen_ai.tool.name": event.sender}
        span = self._instruments.tracer.start_span("approval", within, attributes={**self._common, **labels})
        turn.approvals[event.id] = _OpenSpan(span, labels)

    def _take_answer(self, event: ApprovalResponse) -> None:
        found = (turn.approvals.pop(event.request_id, None) for turn in self._turns.values())
        if (waiting := next((one for one in found if one is not None), None)) is not None:
            waiting.span.set_attribute("kimi.approval.response", event.response)
            waiting.span.end()
            labels = {**waiting.labels, "kimi.approval.response": event.response}
            self._instruments.approval_wait.record(perf_counter() - waiting.began, labels)

    def _end_turn(self, agent_id: str | None) -> None:
        turn = self._turns.pop(agent_id)
        if turn.around is not None:
            self._turns[agent_id] = turn.around
        for waiting in turn.approvals.values():
            waiting.span.end()
        for call in turn.calls.values():
            self._end_call(call, _CANCELLED)
        if turn.step is not None:
            turn.step.end()
        turn.turn.span.end()
        self._instruments.turn_duration.record(perf_counter() - turn.turn.began, turn.turn.labels)
