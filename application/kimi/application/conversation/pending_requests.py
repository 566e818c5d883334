"""The registry of pending requests: one place, each is resolved exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from kimi.domain.events.request import (
    Answer,
    ApprovalAnswer,
    ApprovalRequest,
    HookAnswer,
    HookRequest,
    QuestionAnswer,
    QuestionRequest,
    Request,
    ToolCallAnswer,
    ToolCallRequest,
)
from kimi.domain.tools.tool import ToolReturnValue, tool_error

CONNECTION_CLOSED = tool_error("Wire connection closed before tool result was received.", "Wire closed")


@dataclass(slots=True)
class _PendingRequest:
    request: Request
    memory_key: str | None
    shares_approval: bool
    resolved: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class PendingRequests:
    """Requests that wait for an answer, by id, oldest first.

    After `close` the other side is gone: everything that waits, and everything asked later, is refused.
    `refused_results` then holds the results of the external calls that were waiting, by tool call id. `orphaned` are
    the ids of those calls that nobody waits for any more and that were never answered: their answers may still come.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _PendingRequest] = {}
        self._closed = False
        self.refused_results: dict[str, ToolReturnValue] = {}
        self.orphaned: set[str] = set()

    @property
    def is_closed(self) -> bool:
        """Whether the other side is gone."""
        return self._closed

    def find(self, request_id: str) -> Request | None:
        """The waiting request with this id."""
        entry = self._pending.get(request_id)
        return entry.request if entry else None

    def list_requests(self) -> Sequence[Request]:
        """What waits now, oldest first."""
        return [entry.request for entry in self._pending.values()]

    async def ask(
        self,
        request: Request,
        announce: Callable[[Request], Awaitable[None]],
        memory_key: str | None = None,
        *,
        shares_approval: bool = True,
    ) -> Answer:
        """Announce a request and wait for its answer. Cancellation takes it out of the registry.

        `memory_key` is what approval for the session of this request would remember; one that `shares_approval` is
        approved together with any other of the same key.
        """
        if self._closed:
            return build_refusal(request)
        entry = _PendingRequest(request, memory_key, shares_approval)
        self._pending[request.id] = entry
        try:
            await announce(request)
            await entry.resolved.wait()
        finally:
            unanswered = self._pending.pop(request.id, None) is not None
            if unanswered and isinstance(request, ToolCallRequest):
                self.orphaned.add(request.id)
        return entry.answer or build_refusal(request)

    def resolve(self, request_id: str, answer: Answer) -> bool:
        """Give the answer; False when nothing with this id waits: an unknown, late or second answer."""
        entry = self._pending.pop(request_id, None)
        if entry is None:
            return False
        entry.answer = answer
        entry.resolved.set()
        return True

    def memory_key(self, request_id: str) -> str | None:
        """What approval of this waiting request for the session would remember."""
        entry = self._pending.get(request_id)
        return entry.memory_key if entry else None

    def approve_matching(self, memory_key: str) -> None:
        """Approve every waiting approval request that would be remembered under `memory_key` and may be released."""
        for entry in list(self._pending.values()):
            if isinstance(entry.request, ApprovalRequest) and entry.memory_key == memory_key and entry.shares_approval:
                self.resolve(entry.request.id, ApprovalAnswer("approve"))

    def close(self) -> None:
        """The other side is gone: refuse everything, now and from now on. Idempotent."""
        self._closed = True
        for entry in list(self._pending.values()):
            if isinstance(entry.request, ToolCallRequest):
                self.refused_results[entry.request.id] = CONNECTION_CLOSED
            self.resolve(entry.request.id, build_refusal(entry.request))


def build_refusal(request: Request, result: ToolReturnValue = CONNECTION_CLOSED) -> Answer:
    """The answer that a request gets when nobody can answer it, or not properly; `result` is for a tool call
    (wire spec 4.7)."""
    match request:
        case ApprovalRequest():
            return ApprovalAnswer("reject")
        case ToolCallRequest():
            return ToolCallAnswer(result)
        case QuestionRequest():
            return QuestionAnswer({})
        case HookRequest():
            return HookAnswer()
