"""One MCP server for the life of a conversation: connected in the background, held, connected again (tools 4.2, 4.9).

Knows nothing of the library: a session is whatever `OpenSession` opens.
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

WINDOW_S: Final = 300.0
"""The pauses before connecting again count within this time; when they are used up the server has failed."""

Elicit: TypeAlias = Callable[[Elicitation], Awaitable[ElicitationAnswer]]


class NeedsLogin(Exception):
    """The server wants a login that is not there, or does not take the one that is."""


class RemoteSession(Protocol):
    """An open session with a server. Its events are set once something has happened; the holder clears them."""

    lost: asyncio.Event
    """The connection is gone."""
    list_changed: asyncio.Event
    """The server has other tools than before."""

    async def tools(self) -> Sequence[SourceTool]:
        """All tools that can be offered. Raises what the library does."""
        ...

    async def call(self, tool: str, arguments: JsonObject) -> ToolReturnValue:
        """Call a tool. Raises SourceCallFailed or one of its kind."""
        ...


OpenSession: TypeAlias = Callable[[McpServer, Elicit], AbstractAsyncContextManager[RemoteSession]]
"""Connects on entering and disconnects on leaving. Raises NeedsLogin, or whatever makes connecting impossible."""


@dataclass(frozen=True, slots=True)
class Times:
    """In seconds: to connect and for a call, unless the server has its own; pauses before connecting again; how long
    the list of tools must have been quiet."""

    connect_s: float = 30.0
    call_s: float = 60.0
    pauses_s: tuple[float, ...] = (0.5, 2.0, 8.0)
    quiet_s: float = 1.0


class ServerLink:
    """The connection to one server and all that is known of it. `changed` is called after every change.

    `run` is the one task that opens and closes the session.
    """

    def __init__(
        self,
        server: McpServer,
        times: Times,
        load: Callable[[], Awaitable[OpenSession]],
        reason_of: Callable[[McpServer, BaseException], str],
        changed: Callable[[], None],
    ) -> None:
        self.server = server
        self.view = SourceServer(server.name, "pending" if server.enabled else "disabled")
        self.settled = asyncio.Event()
        self._times = times
        self._load = load
        self._reason_of = reason_of
        self._changed = changed
        self._session: RemoteSession | None = None
        self._stopped = asyncio.Event()
        self._asked: list[Elicit] = []
        self._restarts: deque[float] = deque()
        if not server.enabled or server.broken is not None:
            self._set("failed" if server.enabled else "disabled", server.broken or "It is switched off.")

    @property
    def usable(self) -> bool:
        """Is it worth while to connect?"""
        return self.server.enabled and self.server.broken is None

    def stop(self) -> None:
        """Let `run` close the session and end; nobody waits for it to settle any more. Idempotent."""
        self._stopped.set()
        self.settled.set()

    async def run(self) -> None:
        """Connect and hold the session until `stop`, or until it has failed for good. Raises nothing."""
        try:
            while await self._held():
                await self._unless_stopped(self._pause())
        except Exception:
            logger.exception("the MCP server %s is given up", self.server.name)
            self._set("failed", "It is given up after an error; the log says which.")

    async def _held(self) -> bool:
        """One session to its end; is it worth another?"""
        error = await self._unless_stopped(self._hold())
        self._session = None
        return not self._stopped.is_set() and self._takes(error)

    async def call(self, tool: str, arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
        """See `ToolSource.call`. The time that a person takes for an answer does not count."""
        session = self._session
        if session is None or session.lost.is_set():
            raise SourceUnavailable(self.view.reason)
        seconds = self.server.timeout_ms / 1000 if self.server.timeout_ms else self._times.call_s
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            asked = _patient(elicit, scope, seconds)
            self._asked.append(asked)
            try:
                return await session.call(tool, arguments)
            except SourceDisconnected:
                session.lost.set()
                raise
            finally:
                self._asked.remove(asked)
        raise SourceTimedOut(f"no result after {seconds} s")

    async def elicit(self, wanted: Elicitation) -> ElicitationAnswer:
        """Ask on behalf of the call that came last: the protocol does not say which one wants to know."""
        return await self._asked[-1](wanted) if self._asked else ElicitationAnswer("decline")

    async def _hold(self) -> Exception | None:
        """One session from its beginning to its loss; gives the error, None when it was lost."""
        self._set("connecting" if not self.settled.is_set() else "reconnecting", self.view.reason)
        seconds = self.server.connect_timeout_ms / 1000 if self.server.connect_timeout_ms else self._times.connect_s
        try:
            open_session = await self._load()
            with anyio.CancelScope(deadline=anyio.current_time() + seconds) as connecting:
                async with open_session(self.server, self.elicit) as session:
                    await self._list(session)
                    connecting.deadline = math.inf
                    self._session = session
                    await self._watch(session, seconds)
                    return None
        except Exception as error:
            logger.debug("the MCP server %s cannot be connected", self.server.name, exc_info=error)
            return error
        return TimeoutError(f"It did not answer within {seconds:g} s.")

    def _takes(self, error: Exception | None) -> bool:
        """Note why there is no session; is it worth another try?"""
        reason = self._reason(error)
        if isinstance(error, NeedsLogin):
            self._set("unauthorized", reason)
        elif not self.settled.is_set() or not self._may_restart():
            self._set("failed", reason)
        else:
            self._set("reconnecting", reason)
            return True
        return False

    async def _watch(self, session: RemoteSession, seconds: float) -> None:
        """Follow the list of tools until the session is lost. To list them may take `seconds`."""
        while not await _first_is_set(session.lost, session.list_changed):
            await anyio.sleep(self._times.quiet_s)
            session.list_changed.clear()
            try:
                with anyio.fail_after(seconds):
                    await self._list(session)
            except Exception as error:
                logger.warning("the tools of %s could not be listed again: %s", self.server.name, self._reason(error))

    async def _list(self, session: RemoteSession) -> None:
        tools = tuple(tool for tool in await session.tools() if self._wanted(tool.name))
        self.view = SourceServer(self.server.name, "connected", "", tools)
        self.settled.set()
        self._changed()

    def _wanted(self, name: str) -> bool:
        enabled, disabled = self.server.enabled_tools, self.server.disabled_tools
        is_enabled = enabled is None or any(fnmatchcase(name, pattern) for pattern in enabled)
        return is_enabled and not any(fnmatchcase(name, pattern) for pattern in disabled)

    def _may_restart(self) -> bool:
        now = anyio.current_time()
        while self._restarts and now - self._restarts[0] > WINDOW_S:
            self._restarts.popleft()
        return len(self._restarts) < len(self._times.pauses_s)

    async def _pause(self) -> None:
        pause = self._times.pauses_s[len(self._restarts)]
        await anyio.sleep(pause)
        self._restarts.append(anyio.current_time())

    async def _unless_stopped(self, work: Awaitable[Exception | None]) -> Exception | None:
        """Do `work`, but no longer than until `stop`."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        return None if task.cancelled() else task.result()

    def _reason(self, error: BaseException | None) -> str:
        return self._reason_of(self.server, error) if error else "The connection was lost."

    def _set(self, state: ServerState, reason: str = "") -> None:
        if state not in ("connecting", "reconnecting"):
            self.settled.set()
        if state in ("failed", "unauthorized"):
            logger.warning("the MCP server %s cannot be used: %s", self.server.name, reason)
        self.view = SourceServer(self.server.name, state, reason, self.view.tools)
        self._changed()


def _patient(elicit: Elicit, scope: anyio.CancelScope, seconds: float) -> Elicit:
    """`elicit` while the clock of the call stands still; when nothing is asked any more, it begins anew."""
    waiting = 0

    async def ask(wanted: Elicitation) -> ElicitationAnswer:
        nonlocal waiting
        waiting += 1
        scope.deadline = math.inf
        try:
            return await elicit(wanted)
        finally:
            waiting -= 1
            if not waiting:
                scope.deadline = anyio.current_time() + seconds

    return ask


async def _first_is_set(first: asyncio.Event, second: asyncio.Event) -> bool:
    """Wait for either event; was it the first?"""
    waiting = [asyncio.ensure_future(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return first.is_set()
