"""The hooks at the start and end of a session, and the task group of detached hooks."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.application.hooks.hook_points import fire_hooks, run_hooks

logger = logging.getLogger(__name__)

MAX_SESSION_END_S = 5.0
"""The maximum time in seconds for SessionEnd and the hooks that are still running."""


def _no_deadline() -> float:
    return math.inf


@asynccontextmanager
async def session_hooks_lifespan(
    conversation: Conversation, time_left: Callable[[], float] = _no_deadline
) -> AsyncGenerator[None, None]:
    """Fire SessionStart on entry, without waiting for the hooks; run SessionEnd on exit in every case.

    The exit takes at most `MAX_SESSION_END_S` seconds, or `time_left()` if that is less, plus the time to kill the
    hooks that still run then. An exception of the body is raised unchanged, not wrapped in a group.
    """
    failed: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        conversation.resources.hooks.set_task_group(tasks)
        source = "resume" if conversation.files.is_resumed else "startup"
        await fire_hooks(conversation, "SessionStart", source, {"source": source})
        try:
            yield
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                raise
            failed = error  # raised below, because the group would wrap it
        finally:
            if conversation.resources.hooks.commands:
                await _run_session_end_hooks(conversation, max(0.0, min(MAX_SESSION_END_S, time_left())))
            # Removed before it is cancelled, so that no new hook starts in a group that is ending.
            conversation.resources.hooks.set_task_group(None)
            tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _run_session_end_hooks(conversation: Conversation, timeout_s: float) -> None:
    hooks = conversation.resources.hooks
    with anyio.move_on_after(timeout_s, shield=True) as scope:
        await run_hooks(conversation, "SessionEnd", "exit", {"reason": "exit"})
        await hooks.wait_until_idle()
    if scope.cancelled_caught:
        logger.warning("hooks were still running %.1f s after the end of the session and were stopped", timeout_s)
