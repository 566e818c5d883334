"""Use-case servers: connect to MCP servers, wait for them, and report their status (tools spec 4.2, 4.3)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from kimi.application.conversation.conversation import Conversation
from kimi.domain.errors import ConfigError
from kimi.domain.events.event import MCPLoadingBegin, MCPLoadingEnd, McpStatus, Notification, StatusUpdate

if TYPE_CHECKING:
    from kimi.application.ports import SourceServer
    from kimi.application.settings.settings import McpServer
    from kimi.application.toolset.mcp_tools import ServerTools

logger = logging.getLogger(__name__)

MAX_SHUTDOWN_S: Final = 3.0
"""The maximum time in seconds that servers may take to end."""

MIN_SHUTDOWN_S: Final = 0.3
BROKEN_STATES: Final = ("failed", "unauthorized")


def mcp_status(conversation: Conversation) -> McpStatus | None:
    """Return the current status of the servers; None when the conversation has none."""
    servers = conversation.toolset.servers
    return servers.status() if servers else None


def list_servers(conversation: Conversation) -> Sequence[SourceServer]:
    """Return the servers, each with its state, the reason why it cannot be used, and the tools as it describes them."""
    servers = conversation.toolset.servers
    return servers.servers() if servers else ()


def start_servers(conversation: Conversation) -> None:
    """Start to connect in the background, unless that has been started."""
    if conversation.toolset.servers is not None:
        conversation.toolset.servers.source.start()


def reload_servers(conversation: Conversation, servers: Sequence[McpServer] | None = None) -> None:
    """Reconnect servers that are not connected, or use `servers` instead. Their tools are offered from the next step.

    A conversation that was opened without servers gets none; it must be opened again for that.
    """
    if conversation.toolset.servers is not None:
        conversation.toolset.servers.reload(servers)


async def wait_for_servers(conversation: Conversation) -> None:
    """Wait for the servers to connect before the first model call, and announce it. Raises StoreFailed.

    Only the first turn waits. A server that connects later is offered from the step after.
    """
    servers = conversation.toolset.servers
    if servers is None:
        return
    # Marked before the wait: a turn that is cancelled while it waits has had its wait.
    first, servers.has_waited = not servers.has_waited and conversation.subagent is None, True
    if first:
        servers.source.start()
        if servers.status().loading and servers.settings.first_turn_wait_ms > 0:
            await _wait_for_connections(conversation, servers)
    servers.begin_turn()


async def _wait_for_connections(conversation: Conversation, servers: ServerTools) -> None:
    await conversation.events.emit(StatusUpdate(mcp_status=servers.status()))
    # Emitted without waiting: a cancellation between the event and the `try` would leave out MCPLoadingEnd.
    conversation.events.emit_nowait(MCPLoadingBegin())
    try:
        await conversation.events.channel.wait_for_capacity()
        with anyio.move_on_after(servers.settings.first_turn_wait_ms / 1000):
            await servers.source.wait_for_first_connect()
    finally:
        with anyio.CancelScope(shield=True):
            conversation.toolset.visible_specs()  # assigns the names of the tools, which the status shows
            await conversation.events.emit(StatusUpdate(mcp_status=servers.status()))
            await conversation.events.emit(MCPLoadingEnd())
    servers.failed_in_status = _broken_server_names(servers)


def _broken_server_names(servers: ServerTools) -> frozenset[str]:
    return frozenset(server.name for server in servers.servers() if server.state in BROKEN_STATES)


async def report_server_changes(conversation: Conversation) -> None:
    """Report servers that have failed, and forget approvals of tools that have changed. Called before each step.

    Raises StoreFailed.
    """
    servers = conversation.toolset.servers
    if servers is None:
        return
    _drop_changed_approvals(conversation, servers)
    if conversation.subagent is None:
        await _report_broken_servers(conversation, servers)


def _drop_changed_approvals(conversation: Conversation, servers: ServerTools) -> None:
    """Forget approvals of tools whose description has changed since they were approved, in this or an earlier run.

    Raises StoreFailed.
    """
    from kimi.application.toolset.mcp_tool import (  # start-up time
        approval_key,
        description_fingerprint,
        fingerprinted_approval,
    )

    changed = {approval_key(tool) for tool in servers.find_changed_tools()}
    for tool in (tool for server in servers.servers() for tool in server.tools):
        key = approval_key(tool)
        remembered = conversation.policy.remembered
        if key not in remembered:
            continue
        marks = {entry for entry in remembered if fingerprinted_approval(entry) == key}
        if key in changed or marks - {description_fingerprint(tool)}:
            logger.info("a tool has changed; it is not approved any more: %s", key)
            conversation.permissions.forget({key, *marks})
        elif not marks and conversation.subagent is None:
            conversation.permissions.remember(description_fingerprint(tool))
    # Last: after StoreFailed the change must be found again at the next step, else the tool would stay approved.
    servers.accept_changed_tools()


async def _report_broken_servers(conversation: Conversation, servers: ServerTools) -> None:
    broken = _broken_server_names(servers)
    new, servers.failed_announced = broken - servers.failed_announced, broken
    if new - servers.failed_in_status:
        servers.failed_in_status = broken
        await conversation.events.emit(StatusUpdate(mcp_status=servers.status()))
    for server in servers.servers():
        if server.name in new:
            await conversation.events.emit(_build_notification(conversation, server))


def _build_notification(conversation: Conversation, server: SourceServer) -> Notification:
    return Notification(
        id=conversation.resources.new_id(),
        category="system",
        type=f"mcp.{server.state}",
        source_kind="mcp_server",
        source_id=server.name,
        title=f"MCP server {server.name} is not available",
        body=server.reason,
        severity="warning",
        created_at=conversation.resources.now(),
        payload={"server": server.name, "status": server.state},
    )


@asynccontextmanager
async def servers_lifespan(
    conversation: Conversation, servers: ServerTools | None, time_left: Callable[[], float], *, connect: bool
) -> AsyncGenerator[None, None]:
    """Use these servers in the conversation while the context is open. With `connect` they start to connect at once.

    Raises ConfigError when a required server cannot be used; all servers are stopped then.
    """
    if servers is None:
        yield
        return
    conversation.toolset.use_servers(servers)
    try:
        await _wait_for_required_servers(servers)
        if connect:
            servers.source.start()
        yield
    finally:
        # Shielded, but bounded in time: servers are processes that must not outlive the conversation.
        with anyio.CancelScope(shield=True):
            await servers.source.stop_and_wait(max(MIN_SHUTDOWN_S, min(MAX_SHUTDOWN_S, time_left())))


@asynccontextmanager
async def stop_servers_on_exit(conversation: Conversation) -> AsyncGenerator[None, None]:
    """Ask the servers to end on exit, without waiting; the outer `servers_lifespan` waits for them.

    So the servers end while the contexts in between are closed.
    """
    try:
        yield
    finally:
        if conversation.toolset.servers is not None:
            conversation.toolset.servers.source.request_stop()


async def _wait_for_required_servers(servers: ServerTools) -> None:
    """Wait until all required servers are connected. Raises ConfigError when one of them cannot be used."""
    required = {server.name for server in servers.settings.servers if server.required and server.enabled}
    if not required:
        return
    servers.source.start()
    await servers.source.wait_for_first_connect()
    for server in servers.servers():
        if server.name in required and server.state != "connected":
            raise ConfigError(f"The MCP server '{server.name}' is required and cannot be used: {server.reason}")
