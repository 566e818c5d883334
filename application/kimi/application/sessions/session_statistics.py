"""Use-case session-statistics: what stored sessions did, counted from their event logs (runtime spec 1.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from kimi.application.ports import SessionCatalog
from kimi.domain.content.message import JsonObject
from kimi.domain.history.session import SessionSummary


@dataclass(slots=True)
class ToolFigures:
    """The calls of one tool."""

    calls: int = 0
    failures: int = 0
    """Calls that returned an error. A call without a result, because the turn was cancelled, is no failure."""


@dataclass(slots=True)
class SessionFigures:
    """What sessions did, subagents included; sizes in bytes, times in seconds."""

    sessions: int = 0
    size: int = 0
    turns: int = 0
    steps: int = 0
    retries: int = 0
    turn_seconds: list[float] = field(default_factory=list[float])
    """How long each turn took that ended, with the waits for approvals."""
    tools: dict[str, ToolFigures] = field(default_factory=dict[str, ToolFigures])
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Tokens by their kind, as in a `StatusUpdate`."""

    @property
    def usual_turn_seconds(self) -> tuple[float, float] | None:
        """The duration that half of the turns do not exceed, and the one that 95 of 100 do not; None without turns."""
        if not self.turn_seconds:
            return None
        if len(self.turn_seconds) == 1:
            return self.turn_seconds[0], self.turn_seconds[0]
        steps = quantiles(self.turn_seconds, n=100, method="inclusive")
        return steps[49], steps[94]


def count_sessions(catalog: SessionCatalog, sessions: Iterable[SessionSummary]) -> SessionFigures:
    """Return the figures of these sessions together. Blocks; memory does not grow with the logs but with the turns."""
    figures = SessionFigures()
    for session in sessions:
        figures.sessions += 1
        figures.size += catalog.inspect(session).size
        _LogReader(figures).read(catalog.read_events(session))
    return figures


class _LogReader:
    """Adds the events of one log to the figures."""

    def __init__(self, figures: SessionFigures) -> None:
        self._figures = figures
        self._calls: dict[tuple[str | None, str], str] = {}
        """The tools of calls without a result yet, by agent and call id: some providers count calls anew for each."""
        self._began: float | None = None

    def read(self, events: Iterable[tuple[float, JsonObject]]) -> None:
        """Add all events."""
        for written, event in events:
            self._count_turn(written, event)
            self._count(event)

    def _count_turn(self, written: float, event: JsonObject) -> None:
        """Count a turn of the main agent; those of subagents are part of it."""
        match event.get("type"):
            case "TurnBegin":
                self._figures.turns += 1
                self._began = written or None
            case "TurnEnd" if self._began is not None and written >= self._began:
                self._figures.turn_seconds.append(written - self._began)
                self._began = None
            case _:
                pass

    def _count(self, event: JsonObject, agent_id: str | None = None) -> None:
        payload: Any = event.get("payload")
        match event.get("type"), payload:
            case "SubagentEvent", {"event": {"type": str()}}:
                self._count(payload["event"], str(payload.get("agent_id")))
            case "StepBegin", _:
                self._figures.steps += 1
            case "StepRetry", _:
                self._figures.retries += 1
            case "ToolCall", {"id": str() as call_id, "function": {"name": str() as name}}:
                self._calls[agent_id, call_id] = name
                self._find_tool(name).calls += 1
            case "ToolResult", {"tool_call_id": str() as call_id, "return_value": {"is_error": bool() as is_error}}:
                name = self._calls.pop((agent_id, call_id), None)
                if is_error and name is not None:
                    self._find_tool(name).failures += 1
            case "StatusUpdate", {"token_usage": {"output": int()}}:
                usage: dict[str, Any] = payload["token_usage"]
                self._figures.tokens.update({kind: count for kind, count in usage.items() if type(count) is int})
            case _:
                pass

    def _find_tool(self, name: str) -> ToolFigures:
        return self._figures.tools.setdefault(name, ToolFigures())
