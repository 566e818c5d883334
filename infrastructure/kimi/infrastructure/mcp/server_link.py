"""One MCP server for the life of a conversation: connected in the background, reconnected (tools spec 4.2, 4.9).

This module does not know the library: a session is whatever `OpenSession` opens.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Protocol, TypeAlias

import anyio

from kimi.application.ports import (
    Elicitation,
    ElicitationAnswer,
    ServerState,
    SourceDisconnected,
    SourceServer,
    SourceTimedOut,
    SourceTool,
    SourceUnavailable,
)
from kimi.application.settings.settings import McpServer
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue

logger = logging.getLogger(__name__)

RESTART_WINDOW_S: Final = 300.0
"""The pauses before reconnecting are counted within this time; when all are used, the server has failed."""

AnswerElicitation: TypeAlias = Callable[[Elicitation], Awaitable[ElicitationAnswer]]


class LoginRequired(Exception):
    """The server requires a login that does not exist, or rejects the existing one."""


class RemoteSession(Protocol):
    """An open session with a server. The session sets its events; the holder clears them."""

    lost: asyncio.Event
    """Set when the connection is gone."""
    tools_changed: asyncio.Event
    """Set when the server has other tools than before."""

    @property
    def refusal(self) -> str | None:
        """A sentence that says what the server sent that was refused, if that ended the connection."""
        ...

    async def list_tools(self) -> Sequence[SourceTool]:
        """List all tools that can be offered. Raises what the library raises."""
        ...

    async def call_tool(self, tool: str, arguments: JsonObject) -> ToolReturnValue:
        """Call a tool. Raises SourceCallFailed or a subclass."""
        ...


OpenSession: TypeAlias = Callable[[McpServer, AnswerElicitation], AbstractAsyncContextManager[RemoteSession]]
"""Connects on entering and disconnects on leaving. Raises LoginRequired, or any error that prevents connecting."""


@dataclass(frozen=True, slots=True)
class LinkTimings:
    """The times of a link, in seconds.

    `connect_timeout_s` and `call_timeout_s` hold unless the server has its own, `restart_pauses_s` are the pauses
    before reconnecting, and `tools_quiet_s` is how long the list of tools must have been unchanged.
    """

    connect_timeout_s: float = 30.0
    call_timeout_s: float = 60.0
    restart_pauses_s: tuple[float, ...] = (0.5, 2.0, 8.0)
    tools_quiet_s: float = 1.0


class ServerLink:
    """The connection to one server and its state. `on_change` is called after every change.

    Only `run` opens and closes the session.
    """

    def __init__(
        self,
        server: McpServer,
        timings: LinkTimings,
        load_opener: Callable[[], Awaitable[OpenSession]],
        format_reason: Callable[[McpServer, BaseException], str],
        on_change: Callable[[], None],
    ) -> None:
        self.server = server
        self.snapshot = SourceServer(server.name, "pending" if server.enabled else "disabled")
        self.first_attempt_done = asyncio.Event()
        self._timings = timings
        self._load_opener = load_opener
        self._format_reason = format_reason
        self._on_change = on_change
        self._session: RemoteSession | None = None
        self._stopped = asyncio.Event()
        self._pending_elicits: list[AnswerElicitation] = []
        self._restart_times: deque[float] = deque()
        if not server.enabled or server.config_error is not None:
            self._set_state("failed" if server.enabled else "disabled", server.config_error or "It is switched off.")

    @property
    def is_usable(self) -> bool:
        """Whether a connection should be tried at all."""
        return self.server.enabled and self.server.config_error is None

    def announce_start(self) -> None:
        """Show that the server is being connected. Called before the task of `run` begins, which others may precede."""
        self._set_state("connecting", self.snapshot.reason)

    def stop(self) -> None:
        """Make `run` close the session and end, and release `first_attempt_done`. Idempotent."""
        self._stopped.set()
        self.first_attempt_done.set()

    async def run(self) -> None:
        """Connect and hold the session until `stop`, or until it has failed for good. Raises nothing."""
        try:
            while await self._run_session():
                await self._run_until_stopped(self._wait_before_restart())
        except Exception:
            logger.exception("the MCP server %s is given up", self.server.name)
            self._set_state("failed", "It is given up after an error; the log says which.")

    async def _run_session(self) -> bool:
        """Run one session to its end; return whether another one should be tried."""
        error = await self._run_until_stopped(self._hold_session())
        self._session = None
        return not self._stopped.is_set() and self._handle_loss(error)

    async def call(self, tool: str, arguments: JsonObject, elicit: AnswerElicitation) -> ToolReturnValue:
        """See `ToolSource.call`. The time that the user takes for an answer does not count."""
        session = self._session
        if session is None or session.lost.is_set():
            raise SourceUnavailable(self.snapshot.reason)
        seconds = self.server.timeout_ms / 1000 if self.server.timeout_ms else self._timings.call_timeout_s
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            elicit_with_pause = _pause_timeout_while_asking(elicit, scope, seconds)
            self._pending_elicits.append(elicit_with_pause)
            try:
                return await session.call_tool(tool, arguments)
            except SourceDisconnected:
                # Wakes up `_watch_tools`, so that the link reconnects.
                session.lost.set()
                raise
            finally:
                self._pending_elicits.remove(elicit_with_pause)
        raise SourceTimedOut(f"no result after {seconds} s")

    async def elicit(self, elicitation: Elicitation) -> ElicitationAnswer:
        """Ask on behalf of the latest call: the protocol does not say which call the elicitation belongs to."""
        return await self._pending_elicits[-1](elicitation) if self._pending_elicits else ElicitationAnswer("decline")

    async def _hold_session(self) -> Exception | None:
        """Hold one session from the connection to its loss; return the error, or None if it was lost."""
        self._set_state("connecting" if not self.first_attempt_done.is_set() else "reconnecting", self.snapshot.reason)
        seconds = (
            self.server.connect_timeout_ms / 1000 if self.server.connect_timeout_ms else self._timings.connect_timeout_s
        )
        try:
            open_session = await self._load_opener()
            with anyio.CancelScope(deadline=anyio.current_time() + seconds) as connecting:
                async with open_session(self.server, self.elicit) as session:
                    await self._refresh_tools(session)
                    # The timeout covers connecting and the first listing; from here on the session has no time limit.
                    connecting.deadline = math.inf
                    self._session = session
                    await self._watch_tools(session, seconds)
                    return ConnectionError(session.refusal) if session.refusal else None
        except Exception as error:
            logger.debug("the MCP server %s cannot be connected", self.server.name, exc_info=error)
            return error
        return TimeoutError(f"It did not answer within {seconds:g} s.")

    def _handle_loss(self, error: Exception | None) -> bool:
        """Set the state after a session has ended; return whether another one should be tried."""
        reason = self._describe_loss(error)
        if isinstance(error, LoginRequired):
            self._set_state("unauthorized", reason)
        elif not self.first_attempt_done.is_set() or not self._may_restart():
            self._set_state("failed", reason)
        else:
            self._set_state("reconnecting", reason)
            return True
        return False

    async def _watch_tools(self, session: RemoteSession, seconds: float) -> None:
        """Follow the list of tools until the session is lost. Listing them may take `seconds`."""
        pause = self._timings.tools_quiet_s
        while not await _wait_for_first(session.lost, session.tools_changed):
            await anyio.sleep(pause)
            # Before the listing: a change that arrives during it must cause another one.
            session.tools_changed.clear()
            begun = anyio.current_time()
            try:
                with anyio.fail_after(seconds):
                    await self._refresh_tools(session)
            except Exception as error:
                logger.warning(
                    "the tools of %s could not be listed again: %s", self.server.name, self._describe_loss(error)
                )
            # A long list that changes all the time takes a tenth of our time at most.
            pause = max(self._timings.tools_quiet_s, 9 * (anyio.current_time() - begun))

    async def _refresh_tools(self, session: RemoteSession) -> None:
        tools = tuple(tool for tool in await session.list_tools() if self._is_tool_enabled(tool.name))
        self.snapshot = SourceServer(self.server.name, "connected", "", tools)
        self.first_attempt_done.set()
        self._on_change()

    def _is_tool_enabled(self, name: str) -> bool:
        enabled, disabled = self.server.enabled_tools, self.server.disabled_tools
        is_enabled = enabled is None or any(fnmatchcase(name, pattern) for pattern in enabled)
        return is_enabled and not any(fnmatchcase(name, pattern) for pattern in disabled)

    def _may_restart(self) -> bool:
        now = anyio.current_time()
        while self._restart_times and now - self._restart_times[0] > RESTART_WINDOW_S:
            self._restart_times.popleft()
        return len(self._restart_times) < len(self._timings.restart_pauses_s)

    async def _wait_before_restart(self) -> None:
        pause = self._timings.restart_pauses_s[len(self._restart_times)]
        await anyio.sleep(pause)
        self._restart_times.append(anyio.current_time())

    async def _run_until_stopped(self, work: Awaitable[Exception | None]) -> Exception | None:
        """Do `work`, but no longer than until `stop`."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                # The cancelled work is awaited, so that its session is closed before the next one opens.
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        return None if task.cancelled() else task.result()

    def _describe_loss(self, error: BaseException | None) -> str:
        return self._format_reason(self.server, error) if error else "The connection was lost."

    def _set_state(self, state: ServerState, reason: str = "") -> None:
        if state not in ("connecting", "reconnecting"):
            self.first_attempt_done.set()
        if state in ("failed", "unauthorized"):
            logger.warning("the MCP server %s cannot be used: %s", self.server.name, reason)
        self.snapshot = SourceServer(self.server.name, state, reason, self.snapshot.tools)
        self._on_change()


def _pause_timeout_while_asking(
    elicit: AnswerElicitation, scope: anyio.CancelScope, seconds: float
) -> AnswerElicitation:
    """Return `elicit` such that the timeout of the call is suspended while it runs.

    When nothing is pending any more, the timeout starts anew.
    """
    pending = 0

    async def ask(wanted: Elicitation) -> ElicitationAnswer:
        nonlocal pending
        pending += 1
        scope.deadline = math.inf
        try:
            return await elicit(wanted)
        finally:
            pending -= 1
            if not pending:
                scope.deadline = anyio.current_time() + seconds

    return ask


async def _wait_for_first(first: asyncio.Event, second: asyncio.Event) -> bool:
    """Wait for either event; return whether the first one is set."""
    waiters = [asyncio.ensure_future(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiters:
            task.cancel()
    return first.is_set()
