"""The worker process of a batch: takes orders on stdin, runs several attempts at once, reports on stdout.

It ends when its input ends, whatever it is doing, so that it does not outlive its coordinator (runtime spec 10.3).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from kimi.application.batch.ports import AttemptOrder
from kimi.application.batch.records import ORDERS, OUTCOMES, USAGES
from kimi.application.codec.envelope import encode_json
from kimi.application.settings.flags import share_directory
from kimi.domain.turn import UsageTotal
from kimi.interfaces.batch.attempt import run_attempt
from kimi.interfaces.bootstrap.start import claim_process
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.log import start_logging
from kimi.interfaces.process.stdio import write_all
from kimi.interfaces.process.streams import take_streams
from kimi.interfaces.rpc.framing import LineReader

logger = logging.getLogger("kimi.batch")

ALIVE_S: Final = 5.0
"""Seconds between two reports that this worker is alive; a worker that is silent for a minute is killed."""

_MAX_ORDER_BYTES: Final = 256 * 1024 * 1024


def main() -> int:
    """Run the worker until its input ends; return the exit status. An argument is a descriptor that is only held."""
    for held in sys.argv[1:]:
        os.set_inheritable(int(held), False)  # the lock of the batch is for this process, not for what it starts
    share = share_directory(os.environ)
    streams = take_streams(share, protocol=True)
    start_logging(share, debug=False)
    claim_process()
    process = DriverProcess(streams, ExitRules(hints_after_signal=False))
    return process.run(partial(_serve, process))


async def _serve(process: DriverProcess) -> int:
    worker = _Worker(process)
    async with process.watch(worker.stop, worker) as tasks:
        tasks.start_soon(worker.report_alive)
        await worker.serve()
    return 0


class _Worker:
    """The attempts of this process."""

    def __init__(self, process: DriverProcess) -> None:
        self._process = process
        self._scope = anyio.CancelScope()
        self._attempts: dict[str, anyio.CancelScope] = {}
        self._admitted: dict[str, anyio.Event] = {}
        self._writing = anyio.Lock()
        self.is_write_stuck = False

    def stop(self) -> None:
        """End all attempts, and the worker."""
        self._scope.cancel()

    fail = stop

    async def serve(self) -> None:
        """Take orders until the input ends."""
        lines = LineReader(self._process.open_stdin().read, _MAX_ORDER_BYTES)
        with self._scope:
            async with anyio.create_task_group() as running:
                async for line in lines:
                    if line:
                        self._take_message(json.loads(line), running)
                running.cancel_scope.cancel()

    def _take_message(self, message: dict[str, Any], running: TaskGroup) -> None:
        key = message["key"]
        if message["type"] == "run":
            self._attempts[key], self._admitted[key] = anyio.CancelScope(), anyio.Event()
            running.start_soon(self._run, key, ORDERS.validate_python(message["order"]))
        elif key in self._attempts:
            self._admitted[key].set()
            if message["type"] == "cancel":
                self._attempts[key].cancel()

    async def _run(self, key: str, order: AttemptOrder) -> None:
        async with anyio.create_task_group() as reports:

            def report_usage(usage: UsageTotal) -> None:
                reports.start_soon(self._write, {"type": "usage", "key": key, "usage": USAGES.dump_python(usage)})

            scope, time_left = self._attempts[key], self._process.time_left
            outcome = await run_attempt(order, os.environ, scope, report_usage, self._wait_for_slot(key), time_left)
            # Reports are written in their order, because the lock of the output is fair.
            reports.start_soon(self._write, {"type": "ended", "key": key, "outcome": OUTCOMES.dump_python(outcome)})
        del self._attempts[key], self._admitted[key]

    @asynccontextmanager
    async def _wait_for_slot(self, key: str) -> AsyncGenerator[None, None]:
        """Say that the session is open, wait until the turn may begin, and say that it is over."""
        await self._write({"type": "ready", "key": key})
        await self._admitted[key].wait()
        yield
        await self._write({"type": "turned", "key": key})

    async def report_alive(self) -> None:
        """Report every few seconds that the event loop runs."""
        while True:
            await self._write({"type": "alive"})
            await anyio.sleep(ALIVE_S)

    async def _write(self, message: dict[str, Any]) -> None:
        with anyio.CancelScope(shield=True):  # half a line would be read as a part of the next one
            async with self._writing:
                self.is_write_stuck = True
                try:
                    await write_all(self._process.streams.stdout_fd, encode_json(message) + b"\n")
                except OSError:  # the coordinator is gone
                    self.stop()
                self.is_write_stuck = False


if __name__ == "__main__":
    sys.exit(main())
