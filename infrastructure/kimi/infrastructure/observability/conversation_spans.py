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
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import ApprovalRequest
from kimi.infrastructure.observability.instruments import Instruments

_CANCELLED: Final = "cancelled"
_OBSERVED: Final = frozenset(
    (TurnBegin, TurnEnd, StepBegin, StepInterrupted, ToolCall, ToolResult, ApprovalRequest, ApprovalResponse)
)


@dataclass(slots=True)
class _OpenSpan:
    """A span that has not ended, and the attributes of its measurement."""

    span: Span
    labels: dict[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    began: float = field(default_factory=perf_counter)


@dataclass(slots=True)
class _AgentSpans:
    """The open spans of the main agent, or of a subagent."""

    outside: Context = field(default_factory=context.get_current)
    turn: _OpenSpan | None = None
    step: Span | None = None
    calls: dict[str, _OpenSpan] = field(default_factory=dict[str, _OpenSpan])


class ConversationSpans:
    """Observes the events of one conversation. No text of a prompt, an answer, a call or a result is in a span.

    An event is observed in the task that emits it. So the step becomes the current span there, and the spans of model
    calls and of instrumented libraries are its children.
    """

    def __init__(self, instruments: Instruments, session_id: str, agent_name: str) -> None:
        self._instruments = instruments
        self._common: dict[str, AttributeValue] = {"gen_ai.conversation.id": session_id}
        self._agent_name = agent_name
        self._agents: dict[str | None, _AgentSpans] = {}
        self._approvals: dict[str, _OpenSpan] = {}

    def observe(self, event: Event) -> None:
        """See `kimi.application.ports.ObserveEvent`."""
        if isinstance(event, SubagentEvent):
            self._handle(event.event, event.agent_id, event)
        else:
            self._handle(event, None, None)

    def close(self) -> None:
        """End all spans that are still open. Idempotent."""
        for agent_id in list(self._agents):
            self._end_turn(agent_id)
        for waiting in self._approvals.values():
            waiting.span.end()
        self._approvals.clear()

    def _handle(self, event: Event, agent_id: str | None, origin: SubagentEvent | None) -> None:
        if type(event) not in _OBSERVED:
            return
        match event:
            case TurnBegin():
                self._begin_turn(agent_id, origin)
            case TurnEnd():
                self._finish_turn(agent_id)
            case StepBegin():
                self._begin_step(event, agent_id)
            case StepInterrupted():
                self._interrupt_step(agent_id)
            case ToolCall():
                self._begin_call(event, agent_id)
            case ToolResult():
                self._end_call(event, agent_id)
            case ApprovalRequest():
                self._ask(event)
            case ApprovalResponse():
                self._take_answer(event)
            case _:
                pass

    def _begin_turn(self, agent_id: str | None, origin: SubagentEvent | None) -> None:
        self._end_turn(agent_id)  # the one before broke off, if it is still open
        name = (origin.subagent_type or "subagent") if origin else self._agent_name
        labels: dict[str, AttributeValue] = {"gen_ai.agent.name": name}
        attributes = {**self._common, **labels, "gen_ai.operation.name": "invoke_agent"}
        if agent_id is not None:
            attributes["gen_ai.agent.id"] = agent_id
        agent = self._agents[agent_id] = _AgentSpans()
        parent = self._find_call(origin.parent_tool_call_id) if origin else None
        within = agent.outside if parent is None else trace.set_span_in_context(parent.span, agent.outside)
        span = self._instruments.tracer.start_span(f"invoke_agent {name}", within, attributes=attributes)
        agent.turn = _OpenSpan(span, labels)
        context.attach(trace.set_span_in_context(span, agent.outside))

    def _begin_step(self, event: StepBegin, agent_id: str | None) -> None:
        agent = self._agents.get(agent_id)
        if agent is None or agent.turn is None:
            return
        if agent.step is not None:
            agent.step.end()
        within = trace.set_span_in_context(agent.turn.span, agent.outside)
        agent.step = self._instruments.tracer.start_span(f"step {event.n}", within, attributes={"kimi.step": event.n})
        context.attach(trace.set_span_in_context(agent.step, agent.outside))

    def _interrupt_step(self, agent_id: str | None) -> None:
        agent = self._agents.get(agent_id)
        if agent is not None and agent.step is not None:
            agent.step.set_status(Status(StatusCode.ERROR))

    def _begin_call(self, event: ToolCall, agent_id: str | None) -> None:
        agent = self._agents.get(agent_id)
        if agent is None or event.id in agent.calls:
            return
        labels: dict[str, AttributeValue] = {"gen_ai.tool.name": event.function.name}
        span = self._instruments.tracer.start_span(
            f"execute_tool {event.function.name}",
            attributes={
                **self._common,
                **labels,
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": event.id,
            },
        )
        agent.calls[event.id] = _OpenSpan(span, labels)

    def _end_call(self, event: ToolResult, agent_id: str | None) -> None:
        agent = self._agents.get(agent_id)
        if agent is not None and (call := agent.calls.pop(event.tool_call_id, None)) is not None:
            self._close_call(call, "tool_error" if event.return_value.is_error else None)

    def _close_call(self, call: _OpenSpan, error: str | None) -> None:
        labels = call.labels if error is None else {**call.labels, "error.type": error}
        if error is not None:
            call.span.set_attribute("error.type", error)
            call.span.set_status(Status(StatusCode.ERROR))
        call.span.end()
        self._instruments.tool_duration.record(perf_counter() - call.began, labels)

    def _ask(self, event: ApprovalRequest) -> None:
        call = self._find_call(event.tool_call_id)
        within = None if call is None else trace.set_span_in_context(call.span)
        labels: dict[str, AttributeValue] = {"gen_ai.tool.name": event.sender}
        span = self._instruments.tracer.start_span("approval", within, attributes={**self._common, **labels})
        self._approvals[event.id] = _OpenSpan(span, labels)

    def _take_answer(self, event: ApprovalResponse) -> None:
        if (waiting := self._approvals.pop(event.request_id, None)) is not None:
            waiting.span.set_attribute("kimi.approval.response", event.response)
            waiting.span.end()
            labels = {**waiting.labels, "kimi.approval.response": event.response}
            self._instruments.approval_wait.record(perf_counter() - waiting.began, labels)

    def _finish_turn(self, agent_id: str | None) -> None:
        if (agent := self._agents.get(agent_id)) is not None:
            self._end_turn(agent_id)
            context.attach(agent.outside)

    def _end_turn(self, agent_id: str | None) -> None:
        agent = self._agents.pop(agent_id, None)
        if agent is None:
            return
        for call in agent.calls.values():
            self._close_call(call, _CANCELLED)
        if agent.step is not None:
            agent.step.end()
        if agent.turn is not None:
            agent.turn.span.end()
            self._instruments.turn_duration.record(perf_counter() - agent.turn.began, agent.turn.labels)

    def _find_call(self, call_id: str | None) -> _OpenSpan | None:
        found = (agent.calls.get(call_id) for agent in self._agents.values()) if call_id else ()
        return next((call for call in found if call is not None), None)
