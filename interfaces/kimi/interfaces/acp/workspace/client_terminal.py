"""Run a command in a terminal of the client (acp spec 1.13, 3.10)."""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from kimi.domain.content.message import JsonObject

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 10.0
"""How long a call of the client may take, except the wait for the end of the command, in seconds."""

CANCELLED_TIMEOUT_S: Final = 0.5
"""How long a call may take after the command was cancelled, in seconds."""

MAX_OUTPUT_BYTES: Final = 200_000
"""How much of the end of the output the client must keep: more than a tool shows."""

TRUNCATION_NOTE: Final = "[...the beginning is not kept by the terminal]\n"
UNKNOWN_EXIT_STATUS: Final = -1


@dataclass
class ClientTerminal:
    """A terminal and its command; implements the port `Process`. `create` must be called first."""

    session_id: str
    call_client: Callable[[str, JsonObject], Awaitable[JsonObject]]
    id: str = ""
    _exit_status: int | None = None
    _wait_lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def create(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Start the command. Raises OSError if the client creates no terminal.

        `id` may be set although this was cancelled: then the client has created the terminal, which must be released.
        """
        # The call is shielded, because a cancelled one could leave a terminal with an unknown id. A cancel only
        # shortens the deadline.
        wanted: JsonObject = {
            "sessionId": self.session_id,
            "command": command[0],
            "args": list(command[1:]),
            "cwd": cwd,
            "env": [{"name": name, "value": value} for name, value in env.items()],
            "outputByteLimit": MAX_OUTPUT_BYTES,
        }
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CALL_TIMEOUT_S) as patience:
                tasks.start_soon(_shorten_on_cancel, patience)
                try:
                    self.id = _parse_terminal_id(await self.call_client("terminal/create", wanted))
                except Exception as error:
                    failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise OSError(str(failure)) from failure
        if not self.id:
            raise OSError(f"no answer within {CALL_TIMEOUT_S:g} seconds")

    async def output(self) -> AsyncIterator[bytes]:
        """See `Process`. The client shows the output as it arrives; this yields it in one piece at the end."""
        await self.wait()
        result = await self._call_with_timeout("terminal/output")
        text = result.get("output")
        if isinstance(text, str) and text:
            yield ((TRUNCATION_NOTE if result.get("truncated") is True else "") + text).encode("utf-8", "replace")

    async def wait(self) -> int:
        """See `Process`."""
        async with self._wait_lock:
            if self._exit_status is None:
                self._exit_status = _parse_exit_status(await self._call_terminal("terminal/wait_for_exit"))
        return self._exit_status

    async def kill(self, grace_s: float = 2.0) -> None:
        """See `Process`. The client chooses how to kill the command; the terminal and its output stay."""
        await self._call_with_timeout("terminal/kill")

    async def release(self) -> None:
        """Kill what still runs in the terminal and release it, also after a cancel.

        After a cancel, each call may take only `CANCELLED_TIMEOUT_S`.
        """
        patience_s = CANCELLED_TIMEOUT_S if anyio.current_effective_deadline() == -math.inf else CALL_TIMEOUT_S
        with anyio.CancelScope(shield=True):
            if self._exit_status is None:
                await self._call_with_timeout("terminal/kill", patience_s)
            await self._call_with_timeout("terminal/release", patience_s)

    async def _call_with_timeout(self, method: str, timeout_s: float = CALL_TIMEOUT_S) -> JsonObject:
        """Return the client's result; an empty one if the call fails or takes too long."""
        result: JsonObject = {}
        with anyio.move_on_after(timeout_s) as scope:
            result = await self._call_terminal(method)
        if scope.cancelled_caught:
            logger.warning("%s was not answered within %g seconds", method, timeout_s)
        return result

    async def _call_terminal(self, method: str) -> JsonObject:
        try:
            return await self.call_client(method, {"sessionId": self.session_id, "terminalId": self.id})
        except Exception as error:
            logger.warning("%s failed: %s", method, error)
            return {}


async def _shorten_on_cancel(scope: anyio.CancelScope) -> None:
    """Shorten the deadline of `scope` when this is cancelled: a terminal created in vain must still be released."""
    try:
        await anyio.sleep_forever()
    finally:
        scope.deadline = min(scope.deadline, anyio.current_time() + CANCELLED_TIMEOUT_S)


def _parse_terminal_id(result: JsonObject) -> str:
    terminal_id = result.get("terminalId")
    if not isinstance(terminal_id, str) or not terminal_id:
        raise ValueError("the answer names no terminal")
    return terminal_id


def _parse_exit_status(result: Mapping[str, Any]) -> int:
    """Return the exit status as `Process.wait` does: a signal is a negative number."""
    code, name = result.get("exitCode"), result.get("signal")
    if isinstance(code, int) and not isinstance(code, bool):
        return code
    if not isinstance(name, str):
        return UNKNOWN_EXIT_STATUS
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    known = {one.name: -one.value for one in signal.Signals}
    return known.get(full, UNKNOWN_EXIT_STATUS)
