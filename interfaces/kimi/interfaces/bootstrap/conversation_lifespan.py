"""The life of an opened conversation: what begins with it, and in which order it ends.

Part of the composition root without adapters of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from kimi.application.conversation.background_tasks import stop_tasks_on_exit, wait_for_tasks_on_exit
from kimi.application.hooks.session_hooks import session_hooks_lifespan

if TYPE_CHECKING:
    from kimi.application.conversation.conversation import Conversation
    from kimi.interfaces.bootstrap.containers import SessionContainer


@asynccontextmanager
async def conversation_lifespan(
    session: SessionContainer, time_left: Callable[[], float], *, connect_servers: bool
) -> AsyncGenerator[Conversation, None]:
    """The conversation of a container while the context is open. On leaving, background tasks and MCP servers are
    asked to end first, then the hooks of the end run, then all are waited for, within `time_left()` seconds.

    Raises ConfigError: a required MCP server cannot be used.
    """
    conversation = session.conversation()
    background = conversation.background
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(wait_for_tasks_on_exit(background))
        if session.settings().mcp.servers:
            from kimi.application.control.mcp_servers import servers_lifespan, stop_servers_on_exit  # start-up time

            connected = servers_lifespan(conversation, session.server_tools(), time_left, connect=connect_servers)
            await stack.enter_async_context(connected)
            ending = stop_servers_on_exit(conversation)
        else:
            ending = nullcontext()
        await stack.enter_async_context(session_hooks_lifespan(conversation, time_left))
        await stack.enter_async_context(stop_tasks_on_exit(background))
        await stack.enter_async_context(ending)
        yield conversation
