"""A worker process of a batch from outside: orders go in as lines of JSON, outcomes come back (runtime spec 10.3).

The worker ends by itself when its input ends, so that nothing goes on when this process has died.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from anyio.abc import Process

from kimi.application.batch.ports import AttemptOrder, AttemptSlot, OnUsage, WorkerLost, WorkerNotStarted
from kimi.application.batch.records import ORDERS, OUTCOMES, USAGES
from kimi.application.codec.envelope import encode_json
from kimi.domain.batch import AttemptOutcome, BatchError

logger = logging.getLogger(__name__)

SILENCE_S: Final = 60.0
"""A worker that says nothing for so long hangs, and is killed; it reports every few seconds that it is alive."""

CANCEL_S: Final = 10.0
"""The time that a worker has to end an attempt."""

OVERTIME_S: Final = 30.0
"""How much longer than its timeout an attempt may take, which the worker ends itself, before the worker is killed."""

CLOSE_S: Final = 300.0
"""The time that an attempt has to close its session after its turn; the hooks of the user run then."""

END_S: Final = 4.0
"""The time that a worker has to end after the end of its input."""


@dataclass(slots=True)
class _RunningAttempt:
    on_usage: OnUsage
    ready: anyio.Event = field(default_factory=anyio.Event)
    """Its session is open, or it has ended."""
    turned: anyio.Event = field(default_factory=anyio.Event)
    """Its turn is over, or it has ended."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    outcome: AttemptOutcome | None = None

    def end(self) -> None:
        """Nothing more comes."""
        self.ready.set()
        self.turned.set()
        self.ended.set()


class WorkerProcess:
    """One worker process. `serve` runs it, beside any number of `run`."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], lock_fd: int | None = None) -> None:
        """`arguments` follow the interpreter; the worker inherits the descriptor `lock_fd`."""
        self._arguments = arguments
        self._environ = environ
        self._lock_fd = lock_fd
        self._process: Process | None = None
        self._attempts: dict[str, _RunningAttempt] = {}
        self._started = anyio.Event()
        self._gone = anyio.Event()
        """Its status is known, or it could not be started."""
        self._heard = math.inf
        self._has_begun = False
        """Whether it has said anything."""
        self.is_lost = False
        """Whether it has ended, or cannot be started; then it takes no further attempts."""

    @property
    def load(self) -> int:
        """How many attempts it runs."""
        return len(self._attempts)

    async def serve(self) -> None:
        """Start the process and read what it says until it ends. Cancelled: the process is ended."""
        try:
            self._process = await self._start()
            self._heard = anyio.current_time()
            self._started.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_silence)
                await self._read_messages(self._process)
                tasks.cancel_scope.cancel()
        except OSError:
            logger.exception("a worker of a batch cannot be started")
        finally:
            self.is_lost = True
            self._started.set()
            with anyio.CancelScope(shield=True):
                await self._end()
            self._gone.set()
            for attempt in self._attempts.values():
                attempt.end()

    async def run(self, order: AttemptOrder, on_usage: OnUsage, slot: AttemptSlot) -> AttemptOutcome:
        """See `WorkerPool.run`."""
        key = f"{order.task.id}/{order.number}"
        attempt = self._attempts[key] = _RunningAttempt(on_usage)
        limit = math.inf if order.task.timeout_s is None else order.task.timeout_s + OVERTIME_S
        try:
            await self._started.wait()
            await self._send({"type": "run", "key": key, "order": ORDERS.dump_python(order, mode="json")})
            await attempt.ready.wait()
            if attempt.ended.is_set() and attempt.outcome is None:
                raise await self._describe_loss()
            async with slot:
                if not attempt.ended.is_set():
                    await self._send({"type": "go", "key": key})
                with anyio.move_on_after(limit):
                    await attempt.turned.wait()
            if attempt.turned.is_set():
                with anyio.move_on_after(CLOSE_S, shield=True):  # what was done need not be done again
                    await attempt.ended.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_S), suppress(WorkerLost, WorkerNotStarted):
                await self._send({"type": "cancel", "key": key})
                await attempt.ended.wait()
            if attempt.outcome is None or attempt.outcome.status != "done":
                raise
        finally:
            del self._attempts[key]
        if attempt.outcome is not None:
            return attempt.outcome
        if attempt.turned.is_set():
            self.kill()  # has no effect on one that has ended
            raise await self._describe_loss()
        self.kill()
        text = f"It took longer than {order.task.timeout_s:g} s and could not be ended; its worker was killed."
        return AttemptOutcome("timeout", seconds=limit, error=BatchError("timeout", text))

    def kill(self) -> None:
        """End the process at once."""
        self.is_lost = True
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()

    async def close(self) -> None:
        """Let the process end, because it is not needed any more; `serve` returns soon."""
        self.is_lost = True
        if self._process is not None and self._process.stdin is not None:
            await self._process.stdin.aclose()

    async def _start(self) -> Process:
        inherited = () if self._lock_fd is None or sys.platform == "win32" else (self._lock_fd,)
        extra: dict[str, Any] = (
            {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if sys.platform == "win32" else {}
        )
        return await anyio.open_process(
            [sys.executable, *self._arguments, *(str(fd) for fd in inherited)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self._environ),
            start_new_session=os.name == "posix",  # an interrupt of the terminal is for the coordinator alone
            pass_fds=inherited,
            **extra,
        )

    async def _describe_loss(self) -> WorkerLost | WorkerNotStarted:
        """Return what is said of the loss; of a process that is about to end, with its status."""
        with anyio.move_on_after(END_S):
            await self._gone.wait()
        status = None if self._process is None else self._process.returncode
        ended = "" if status is None else f" with status {status}"
        if self._has_begun:
            return WorkerLost(f"The worker process has ended{ended}.")
        return WorkerNotStarted(f"the last one ended{ended} before it said anything; see the log, and try again.")

    async def _send(self, message: Mapping[str, Any]) -> None:
        if self.is_lost or self._process is None or self._process.stdin is None:
            raise await self._describe_loss()
        try:
            # Shielded: half a line would make the worker misunderstand every later one.
            with anyio.CancelScope(shield=True):
                await self._process.stdin.send(encode_json(message) + b"\n")
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._describe_loss() from error

    async def _read_messages(self, process: Process) -> None:
        assert process.stdout is not None
        pieces: list[bytes] = []
        async for block in process.stdout:
            self._heard = anyio.current_time()
            self._has_begun = True
            *lines, rest = block.split(b"\n")
            for line in lines:
                self._handle(b"".join((*pieces, line)))
                pieces.clear()
            pieces.append(rest)

    def _handle(self, line: bytes) -> None:
        message = json.loads(line)
        attempt = self._attempts.get(message.get("key", ""))
        if attempt is None:
            return
        if message["type"] == "usage":
            attempt.on_usage(USAGES.validate_python(message["usage"]))
        elif message["type"] == "ended":
            attempt.outcome = OUTCOMES.validate_python(message["outcome"])
            attempt.end()
        elif message["type"] == "ready":
            attempt.ready.set()
        elif message["type"] == "turned":
            attempt.turned.set()

    async def _watch_silence(self) -> None:
        while True:
            left = self._heard + SILENCE_S - anyio.current_time()
            if left <= 0:
                logger.error("a worker of a batch has not responded for %s s and is killed", SILENCE_S)
                self.kill()
                return
            await anyio.sleep(left)

    async def _end(self) -> None:
        """End the process, at first by the end of its input."""
        if self._process is None:
            return
        await self.close()
        with anyio.move_on_after(END_S):
            await self._process.wait()
            return
        self.kill()
        await self._process.wait()
