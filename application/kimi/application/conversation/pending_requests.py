"""The registry of waiting requests: one place, each settled exactly once (house rules)."""

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
class _Waiting:
    request: Request
    memory_key: str | None
    releasable: bool
    settled: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class WaitingRequests:
    """Requests that wait for an answer, by id, oldest first.

    After `close` the other side is gone: everything that waits, and everything asked later, is refused.
    `refused` then holds the results of the external calls that were waiting, by tool call id. `abandoned` are the ids
    of those calls that nobody waits for any more and that were never answered: their answers may still come.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._closed = False
        self.refused: dict[str, ToolReturnValue] = {}
        self.abandoned: set[str] = set()

    @property
    def closed(self) -> bool:
        """Is the other side gone?"""
        return self._closed

    def find(self, request_id: str) -> Request | None:
        """The waiting request with this id."""
        entry = self._waiting.get(request_id)
        return entry.request if entry else None

    def pending(self) -> Sequence[Request]:
        """What waits now, oldest first."""
        return [entry.request for entry in self._waiting.values()]

    async def ask(
        self,
        request: Request,
        announce: Callable[[Request], Awaitable[None]],
        memory_key: str | None = None,
        *,
        releasable: bool = True,
    ) -> Answer:
        """Announce a request and wait for its answer. Cancellation takes it out of the registry.

        `memory_key` is what approval for the session of this request would remember; a `releasable` one is approved
        together with any other of the same key.
        """
        if self._closed:
            return refusal(request)
        entry = _Waiting(request, memory_key, releasable)
        self._waiting[request.id] = entry
        try:
            await announce(request)
            await entry.settled.wait()
        finally:
            unanswered = self._waiting.pop(request.id, None) is not None
            if unanswered and isinstance(request, ToolCallRequest):
                self.abandoned.add(request.id)
        return entry.answer or refusal(request)

    def settle(self, request_id: str, answer: Answer) -> bool:
        """Give the answer; False when nothing with this id waits: an unknown, late or second answer."""
        entry = self._waiting.pop(request_id, None)
        if entry is None:
            return False
        entry.answer = answer
        entry.settled.set()
        return True

    def memory_key(self, request_id: str) -> str | None:
        """What approval of this waiting request for the session would remember."""
        entry = self._waiting.get(request_id)
        return entry.memory_key if entry else None

    def release(self, memory_key: str) -> None:
        """Approve every waiting approval request that would be remembered under `memory_key` and may be released."""
        for entry in list(self._waiting.values()):
            if isinstance(entry.request, ApprovalRequest) and entry.memory_key == memory_key and entry.releasable:
                self.settle(entry.request.id, ApprovalAnswer("approve"))

    def close(self) -> None:
        """The other side is gone: refuse everything, now and from now on. Idempotent."""
        self._closed = True
        for entry in list(self._waiting.values()):
            if isinstance(entry.request, ToolCallRequest):
                self.refused[entry.request.id] = CONNECTION_CLOSED
            self.settle(entry.request.id, refusal(entry.request))


def refusal(request: Request, result: ToolReturnValue = CONNECTION_CLOSED) -> Answer:
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
