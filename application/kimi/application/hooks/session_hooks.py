"""The hooks of a session's start and end, and the place where hooks run that nobody waits for."""

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
"""How long SessionEnd, and what is still running, may take."""


def _no_deadline() -> float:
    return math.inf


@asynccontextmanager
async def session_hooks_lifespan(
    conversation: Conversation, time_left: Callable[[], float] = _no_deadline
) -> AsyncGenerator[None, None]:
    """SessionStart on entering, without waiting for it; SessionEnd on leaving, however that comes.

    Leaving takes at most `MAX_SESSION_END_S` seconds, or `time_left()` if less, plus the time to kill what still
    runs then. An exception of the body comes out as it is.
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
            failed = error  # the group would wrap it
        finally:
            if conversation.resources.hooks.commands:
                await _run_session_end_hooks(conversation, max(0.0, min(MAX_SESSION_END_S, time_left())))
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
