"""Call the functions that an embedding program gives, and turn what they return into answers to requests."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kimi.application.conversation.pending_requests import build_refusal
from kimi.domain.errors import UsageError
from kimi.domain.events.request import (
    Answer,
    ApprovalAnswer,
    ApprovalRequest,
    HookAnswer,
    HookRequest,
    QuestionAnswer,
    QuestionRequest,
    Request,
)
from kimi.interfaces.embed.options import (
    REJECTION,
    AgentOptions,
    ApprovalVerdict,
    HookVerdict,
    PythonHook,
)

if TYPE_CHECKING:
    from kimi.domain.hook import HookSubscription

logger = logging.getLogger("kimi.embed")
T = TypeVar("T")


async def call_function(function: Callable[..., T | Awaitable[T]], /, *arguments: object, **named: object) -> T:
    """Call a function of the embedding program: an async one on the event loop, another in a thread of its own, so
    that it may block for as long as it likes. Raises what it raises, but RuntimeError where it was cancelled and the
    caller was not, or called sys.exit: neither may end more than the call."""
    try:
        if _is_async(function):
            return await cast("Awaitable[T]", function(*arguments, **named))
        result = await _call_in_thread(partial(function, *arguments, **named))
        return await cast("Awaitable[T]", result) if inspect.isawaitable(result) else cast("T", result)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("What the function waited for was cancelled.") from error
    except SystemExit as error:
        raise RuntimeError(f"The function called sys.exit({error.code!r}).") from error


async def _call_in_thread(function: Callable[[], T | Awaitable[T]]) -> T | Awaitable[T]:
    import anyio
    from anyio.to_thread import run_sync

    # The threads that anyio limits read files for all agents; functions that block must not use them up.
    return await run_sync(function, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


def _is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class RequestAnswers:
    """Who answers the requests of an agent: the functions of its options, nobody, or whoever reads the events."""

    def __init__(self, options: AgentOptions) -> None:
        self._approve = options.get("approve", "reject")
        self._ask = options.get("answer_questions")
        if not callable(self._approve) and self._approve not in ("reject", "all", "events"):
            raise UsageError(f"`approve` is {self._approve!r}: give 'reject', 'all', 'events' or a function.")
        if not callable(self._ask) and self._ask not in (None, "events"):
            raise UsageError(f"`answer_questions` is {self._ask!r}: give 'events' or a function.")
        self._hooks = {
            f"hook-{number}": hook
            for number, hook in enumerate(options.get("hooks", ()), 1)
            if isinstance(hook, PythonHook)
        }

    @property
    def can_ask(self) -> bool:
        """Whether somebody answers the model's questions."""
        return self._ask is not None

    def subscriptions(self) -> list[HookSubscription]:
        """Return the subscriptions of the functions that are hooks."""
        from kimi.domain.hook import HookSubscription

        return [HookSubscription(key, one.event, one.matcher, one.timeout_s) for key, one in self._hooks.items()]

    def find(self, request: Request) -> Callable[[], Awaitable[Answer]] | None:
        """Return what answers a request; None for one that the reader of the events answers."""
        match request:
            case ApprovalRequest():
                return None if self._approve == "events" else partial(self._answer_approval, request)
            case QuestionRequest():
                return None if self._ask == "events" else partial(self._answer_question, request)
            case HookRequest():
                return partial(self._answer_hook, request)
            case _:
                return partial(_refuse, request)

    async def _answer_approval(self, request: ApprovalRequest) -> Answer:
        if not callable(self._approve):
            logger.info("'%s' was rejected: open_agent was given no `approve`", request.action)
            return ApprovalAnswer("reject", REJECTION)
        return build_approval(await call_function(self._approve, request))

    async def _answer_question(self, request: QuestionRequest) -> Answer:
        if not callable(self._ask):
            return build_refusal(request)
        answers = await call_function(cast("Callable[..., Mapping[str, Any]]", self._ask), request)
        return QuestionAnswer(dict(answers))

    async def _answer_hook(self, request: HookRequest) -> Answer:
        hook = self._hooks[request.subscription_id]
        try:
            verdict = await call_function(hook.run, request.input_data)
        except Exception as error:
            logger.exception("a hook on %s raised, so it %ss", request.event, hook.on_failure)
            return HookAnswer(hook.on_failure, f"The hook on {request.event} failed: {error}")
        return _build_hook_answer(verdict)


async def _refuse(request: Request) -> Answer:
    return build_refusal(request)


def build_approval(verdict: ApprovalVerdict) -> ApprovalAnswer:
    """Return the answer for what a function returned. Raises ValueError for anything else."""
    match verdict:
        case ApprovalAnswer():
            return verdict
        case bool():
            return ApprovalAnswer("approve" if verdict else "reject")
        case "approve" | "approve_for_session" | "reject":
            return ApprovalAnswer(verdict)
        case _:
            raise ValueError(
                f"{verdict!r} is no answer to a question for approval; answer with True, False, 'approve', "
                "'approve_for_session', 'reject' or an ApprovalAnswer"
            )


def _build_hook_answer(verdict: HookVerdict) -> HookAnswer:
    match verdict:
        case HookAnswer():
            return verdict
        case str():
            return HookAnswer("block", verdict)
        case False:
            return HookAnswer("block")
        case _:
            return HookAnswer()
