"""One attempt at a task of a batch: a session of its own, one prompt, and how that ended (runtime spec 10.3)."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import anyio

from kimi.application.batch.ports import AttemptOrder, AttemptSlot, OnUsage
from kimi.application.batch.task_file import BUILTIN_AGENTS
from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.pending_requests import build_refusal
from kimi.application.sessions.negotiate_initialize import set_client
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.application.turn.run_turn import run_turn
from kimi.domain.batch import AttemptOutcome, BatchError, BatchMode, BatchStatus
from kimi.domain.client import Client
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import (
    CapabilityMissing,
    ChatProviderError,
    ConfigError,
    ModelNotSet,
    SessionError,
    UsageError,
)
from kimi.domain.events.event import REQUEST_TYPES, StatusUpdate, StepBegin, StepInterrupted, StepRetry, TurnBegin
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import leave_last_session, open_conversation
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.print.background_wait import wait_for_tasks
from kimi.interfaces.print.failure import classify_error
from kimi.interfaces.process.log import hide_secrets, mask_secrets
from kimi.interfaces.process.self_protection import hide_secrets_of_process

logger = logging.getLogger("kimi.batch")

_CLIENT: Final = Client(supports_question=True, supports_plan_mode=True)
"""The tools that ask the user are offered, but their requests are refused because there is no user."""

CANCELLED_ATTEMPT: Final = AttemptOutcome("cancelled", error=BatchError("cancelled", "The task was cancelled."))

_CODES: Final = (
    ((ConfigError, UsageError), "config"),
    ((ModelNotSet,), "model"),
    ((CapabilityMissing,), "capability"),
    ((ChatProviderError,), "provider"),
    ((SessionError,), "session"),
)


async def run_attempt(
    order: AttemptOrder,
    environ: Mapping[str, str],
    scope: anyio.CancelScope,
    on_usage: OnUsage,
    slot: AttemptSlot,
    time_left: Callable[[], float] = lambda: math.inf,
) -> AttemptOutcome:
    """Run one attempt to its end; cancelling `scope` ends it with status `cancelled`.

    `slot` is entered when the session is open, and left when the turn is over. On leaving, `time_left()` returns how
    many seconds the session-end hooks may take. Raises nothing.
    """
    try:
        return await _run_in_session(order, environ, scope, on_usage, slot, time_left)
    except Exception as error:
        return _describe_failure(error)


async def _run_in_session(
    order: AttemptOrder,
    environ: Mapping[str, str],
    scope: anyio.CancelScope,
    on_usage: OnUsage,
    slot: AttemptSlot,
    time_left: Callable[[], float],
) -> AttemptOutcome:
    if not os.path.isdir(order.directory):
        text = f"The directory {order.directory} does not exist here; make it before the batch runs."
        return AttemptOutcome("failed", error=BatchError("work_dir", text))
    variables = {**environ, **order.task.env}
    app = App(settings=providers.Object(_load_settings(order, variables)), environ=providers.Object(variables))
    opening = open_conversation(app, SessionSelector(), time_left=time_left, adapt_container=leave_last_session)
    async with opening as conversation:
        attempt = _Attempt(order, conversation, scope, on_usage)
        async with slot:
            started = anyio.current_time()
            outcome = CANCELLED_ATTEMPT if scope.cancel_called else await attempt.run()
        seconds, usage = anyio.current_time() - started, conversation.models.usage.figures.session
        return replace(outcome, session_id=conversation.id, usage=usage, seconds=seconds)


def _load_settings(order: AttemptOrder, variables: Mapping[str, str]) -> Settings:
    mode = order.task.mode or default_mode(order.flags)
    settings = load_settings(build_flags(order, mode), variables)
    hide_secrets(settings.secret_values)
    if settings.secret_variables:
        hide_secrets_of_process(settings.secret_variables, settings.secret_values)
    return settings.model_copy(update={"unattended": mode in ("afk", "plan")})


def default_mode(flags: Flags) -> BatchMode:
    """Return the mode of tasks that name none, by the options of the program."""
    return "plan" if flags.plan else "edits" if flags.edits else "afk"


def build_flags(order: AttemptOrder, mode: BatchMode) -> Flags:
    """Return the flags of the program with what the task says instead."""
    task, flags = order.task, replace(order.flags, work_dir=order.directory, ui="print")
    flags = replace(flags, edits=mode == "edits", plan=mode == "plan", afk=False, yolo=False, prompt=None)
    if task.model is not None:
        flags = replace(flags, model=task.model)
    if task.agent in BUILTIN_AGENTS:
        flags = replace(flags, agent=task.agent, agent_file=None)
    elif task.agent is not None:
        flags = replace(flags, agent=None, agent_file=task.agent)
    return flags if task.max_steps is None else replace(flags, max_steps_per_turn=task.max_steps)


class _Attempt:
    """One attempt on its conversation."""

    def __init__(
        self, order: AttemptOrder, conversation: Conversation, scope: anyio.CancelScope, on_usage: OnUsage
    ) -> None:
        self._task = order.task
        self._conversation = conversation
        self._scope = scope
        self._on_usage = on_usage
        self._answer: list[str] = []
        self._ended_by: tuple[BatchStatus, BatchError] | None = None
        set_client(conversation, _CLIENT)

    async def run(self) -> AttemptOutcome:
        """Run the prompt, wait for what it started in the background, and return how it ended."""
        timeout = math.inf if self._task.timeout_s is None else self._task.timeout_s
        outcome = CANCELLED_ATTEMPT
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump_events)
            with self._scope, anyio.CancelScope(deadline=anyio.current_time() + timeout) as limit:
                outcome = await self._run_turns()
            if limit.cancelled_caught and not self._scope.cancelled_caught and self._ended_by is None:
                text = f"It was not done within {timeout:g} s."
                outcome = AttemptOutcome("timeout", error=BatchError("timeout", text))
            tasks.cancel_scope.cancel()
        if self._ended_by is not None:
            status, error = self._ended_by
            return AttemptOutcome(status, "".join(self._answer) or None, error=error)
        return outcome

    async def _run_turns(self) -> AttemptOutcome:
        outcome = await self._run_turn(self._task.prompt)
        if outcome.status == "done" and (waited := await wait_for_tasks(self._conversation, self._run_follow_up)):
            outcome = AttemptOutcome("timeout", error=BatchError("background", f"It {waited}."))
        return outcome if outcome.error else replace(outcome, answer="".join(self._answer))

    async def _run_follow_up(self, text: str) -> None:
        await self._run_turn(text)

    async def _run_turn(self, prompt: str) -> AttemptOutcome:
        conversation = self._conversation
        try:
            status = await run_turn(conversation, conversation.turns.begin(), prompt)
        except Exception as error:
            return _describe_failure(error)
        finally:
            with anyio.CancelScope(shield=True):
                await conversation.files.sync()
        if status.status == "max_steps_reached":
            error = BatchError("max_steps", f"It used up its {status.steps} steps.")
            return AttemptOutcome("budget", "".join(self._answer) or None, error=error)
        return AttemptOutcome("done")

    async def _pump_events(self) -> None:
        """Keep the text of the last step, watch the budget, and refuse requests, because there is no user."""
        channel = self._conversation.events.channel
        try:
            while batch := await channel.receive():
                for event, _ in batch:
                    match event:
                        case TurnBegin() | StepBegin() | StepRetry() | StepInterrupted():
                            self._answer.clear()
                        case TextPart(text):
                            self._answer.append(text)
                        case StatusUpdate():
                            self._check_tokens()
                        case _ if isinstance(event, REQUEST_TYPES):
                            resolve_request(self._conversation, event.id, build_refusal(event))
                        case _:
                            pass
        finally:
            channel.close()  # else a turn would wait for its events forever

    def _check_tokens(self) -> None:
        usage = self._conversation.models.usage.figures.session
        self._on_usage(usage)
        limit = self._task.max_tokens
        if limit is not None and usage.tokens.total >= limit and self._ended_by is None:
            text = f"It used {usage.tokens.total} of its {limit} tokens."
            self._ended_by = ("budget", BatchError("max_tokens", text))
            self._scope.cancel()


def _describe_failure(error: Exception) -> AttemptOutcome:
    """Return the outcome for an error, without secrets."""
    failure = classify_error(error)
    code = next((code for types, code in _CODES if isinstance(error, types)), "internal")
    text = BatchError(code, mask_secrets(failure.message))
    return AttemptOutcome("failed", error=text, may_pass=failure.retryable)
