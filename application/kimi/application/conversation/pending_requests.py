"""The registry of pending requests, which resolves each request exactly once."""

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
DUPLICATE_ID = tool_error("Another call with the same id is waiting for its result. Use a new id.", "Duplicate call id")


@dataclass(slots=True)
class _PendingRequest:
    request: Request
    memory_key: str | None
    is_allowed: Callable[[], bool]
    resolved: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class PendingRequests:
    """Requests that wait for an answer of the client, by id, oldest first.

    After `close` the client is gone: all pending requests and all later ones are refused. `refused_results` then holds
    the results of the external calls that were pending, by tool call id. `orphaned` holds the ids of external calls
    whose wait was cancelled before they were answered: their answers may still arrive.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _PendingRequest] = {}
        self._closed = False
        self.refused_results: dict[str, ToolReturnValue] = {}
        self.orphaned: set[str] = set()

    @property
    def is_closed(self) -> bool:
        """Whether the client is gone."""
        return self._closed

    def find(self, request_id: str) -> Request | None:
        """Return the pending request with this id, None if there is none."""
        entry = self._pending.get(request_id)
        return entry.request if entry else None

    def list_requests(self) -> Sequence[Request]:
        """Return the pending requests, oldest first."""
        return [entry.request for entry in self._pending.values()]

    async def ask(
        self,
        request: Request,
        announce: Callable[[Request], Awaitable[None]],
        memory_key: str | None = None,
        *,
        is_allowed: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Announce a request and wait for its answer. Cancellation removes it from the registry.

        `memory_key` is the key under which an approval for the session is remembered, None if it is given only once.
        `is_allowed` returns whether the policy, as it is now, would allow the action without asking.
        """
        if self._closed:
            return build_refusal(request)
        if request.id in self._pending:  # the ids of tool calls come from the model
            return build_refusal(request, DUPLICATE_ID)
        entry = _PendingRequest(request, memory_key, is_allowed)
        # Registered before it is announced: the answer may arrive while `announce` still waits for the channel.
        self._pending[request.id] = entry
        try:
            await announce(request)
            await entry.resolved.wait()
        finally:
            # `resolve` has removed an answered request, so one that is still registered was cancelled unanswered.
            unanswered = self._pending.pop(request.id, None) is not None
            if unanswered and isinstance(request, ToolCallRequest):
                self.orphaned.add(request.id)
        return entry.answer or build_refusal(request)

    def resolve(self, request_id: str, answer: Answer) -> bool:
        """Answer a request; return False when none with this id is pending (unknown, late or second answer)."""
        entry = self._pending.pop(request_id, None)
        if entry is None:
            return False
        entry.answer = answer
        entry.resolved.set()
        return True

    def memory_key(self, request_id: str) -> str | None:
        """Return the key under which an approval of this pending request for the session is remembered."""
        entry = self._pending.get(request_id)
        return entry.memory_key if entry else None

    def approve_matching(self, memory_key: str) -> None:
        """Approve every pending approval request with this key that the policy would allow by now."""
        for entry in list(self._pending.values()):
            if isinstance(entry.request, ApprovalRequest) and entry.memory_key == memory_key and entry.is_allowed():
                self.resolve(entry.request.id, ApprovalAnswer("approve"))

    def close(self) -> None:
        """Refuse all pending requests and all later ones, because the client is gone. Idempotent."""
        self._closed = True
        for entry in list(self._pending.values()):
            # Kept apart from the answer: the turn may be cancelled before the call returns this result.
            if isinstance(entry.request, ToolCallRequest):
                self.refused_results[entry.request.id] = CONNECTION_CLOSED
            self.resolve(entry.request.id, build_refusal(entry.request))


def build_refusal(request: Request, result: ToolReturnValue = CONNECTION_CLOSED) -> Answer:
    """Return the answer to a request that the client cannot answer, or has answered in a wrong form (wire spec 4.7).

    `result` is the result of a refused tool call.
    """
    match request:
        case ApprovalRequest():
            return ApprovalAnswer("reject")
        case ToolCallRequest():
            return ToolCallAnswer(result)
        case QuestionRequest():
            return QuestionAnswer({})
        case HookRequest():
            return HookAnswer()
