"""Workers on a Ray cluster: each is a worker process as on one machine, held by an actor on some node.

Only this module loads Ray, and only when a batch is to run on it. Ray starts the actors, tells of those that are lost
and carries orders and outcomes; what runs in an attempt is the same program as without it (runtime spec 10.6).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import Any, Final, Protocol, cast

import anyio

from kimi.application.batch.ports import AttemptOrder, AttemptSlot, OnUsage, WorkerLost, WorkerNotStarted
from kimi.application.batch.records import ORDERS, OUTCOMES, USAGES
from kimi.application.codec.envelope import encode_json
from kimi.domain.batch import AttemptOutcome, BatchRefused
from kimi.domain.turn import UsageTotal
from kimi.infrastructure.batch.worker_pool import SharedWorkers, share_workers
from kimi.infrastructure.batch.worker_process import CANCEL_S, WorkerProcess

logger = logging.getLogger(__name__)

CONNECT_S: Final = 10.0
"""The time in which a cluster must answer."""

_OWN_ENVIRONMENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # the nodes have their own environment
}


class _RayMethod(Protocol):
    """A method of an actor."""

    def remote(self, *arguments: object) -> Any: ...

    def options(self, *, num_returns: str) -> _RayMethod: ...


class _RayActor(Protocol):
    """The handle of a `WorkerActor`."""

    run: _RayMethod
    admit: _RayMethod
    cancel: _RayMethod


class _RayLibrary(Protocol):
    """The members of the library that are used here; it is not there when types are checked."""

    def init(self, address: str, **options: object) -> object: ...

    def shutdown(self) -> None: ...

    def kill(self, actor: _RayActor) -> None: ...

    def cluster_resources(self) -> Mapping[str, float]: ...

    def remote(self, **options: object) -> Callable[[type], Any]: ...


class WorkerActor:
    """Runs on a node of the cluster and holds one worker process, which ends with it."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._worker = WorkerProcess(arguments, inherited | dict(variables))
        self._serving: asyncio.Task[None] | None = None
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._admitted: dict[str, anyio.Event] = {}

    async def run(self, key: str, order: bytes) -> AsyncGenerator[bytes, None]:
        """Run an attempt; yield that it waits for `admit`, what it has used, that its turn is over, and at the end its
        outcome, or that the worker is lost."""
        if self._serving is None:
            self._serving = asyncio.create_task(self._worker.serve())
        send, receive = anyio.create_memory_object_stream[bytes](math.inf)
        attempt = asyncio.create_task(self._run(key, ORDERS.validate_json(order), send.send_nowait, send.close))
        with receive:
            async for message in receive:
                yield message
        await attempt

    async def admit(self, key: str) -> None:
        """Let the turn of an attempt begin."""
        if key in self._admitted:
            self._admitted[key].set()

    async def cancel(self, key: str) -> None:
        """End an attempt."""
        if key in self._scopes:
            self._scopes[key].cancel()

    async def _run(
        self, key: str, order: AttemptOrder, send: Callable[[bytes], None], close: Callable[[], None]
    ) -> None:
        def report(usage: UsageTotal) -> None:
            send(encode_json({"usage": USAGES.dump_python(usage)}))

        @asynccontextmanager
        async def wait_for_slot() -> AsyncGenerator[None, None]:
            send(encode_json({"is_ready": True}))
            await self._admitted[key].wait()
            yield
            send(encode_json({"is_over": True}))

        self._scopes[key], self._admitted[key] = scope, _ = anyio.CancelScope(), anyio.Event()
        try:
            with scope:
                outcome = await self._worker.run(order, report, wait_for_slot())
                send(encode_json({"outcome": OUTCOMES.dump_python(outcome)}))
        except WorkerLost:
            send(encode_json({"lost": True}))
        except WorkerNotStarted as error:
            send(encode_json({"not_started": str(error)}))
        finally:
            del self._scopes[key], self._admitted[key]
            close()


class _RayWorker:
    """A `BatchWorker` on the cluster."""

    def __init__(self, ray: _RayLibrary, lost_errors: type[Exception], actor: _RayActor) -> None:
        self._ray = ray
        self._lost_errors = lost_errors
        self._actor = actor
        self._ended = anyio.Event()
        self.is_lost = False
        self.load = 0

    async def serve(self) -> None:
        """See `BatchWorker`."""
        try:
            await self._ended.wait()
        finally:
            self._ray.kill(self._actor)

    async def run(self, order: AttemptOrder, on_usage: OnUsage, slot: AttemptSlot) -> AttemptOutcome:
        """See `BatchWorker`."""
        key = f"{order.task.id}/{order.number}"
        self.load += 1
        try:
            messages = self._actor.run.options(num_returns="streaming").remote(key, ORDERS.dump_json(order))
            async with AsyncExitStack() as stack:
                return await self._follow(key, messages, on_usage, (slot, stack))
        except self._lost_errors as error:
            logger.warning("a worker of the cluster is lost: %s", error)
            raise self._lose() from error
        finally:
            self.load -= 1

    async def close(self) -> None:
        """See `BatchWorker`."""
        self.is_lost = True
        self._ended.set()

    async def _follow(
        self,
        key: str,
        messages: AsyncIterator[Awaitable[bytes]],
        on_usage: OnUsage,
        slot: tuple[AttemptSlot, AsyncExitStack],
    ) -> AttemptOutcome:
        try:
            with anyio.CancelScope() as closing:
                async for reference in messages:
                    message = json.loads(await reference)
                    if "is_ready" in message:
                        await slot[1].enter_async_context(slot[0])
                        await self._actor.admit.remote(key)
                    elif "is_over" in message:
                        closing.shield = True  # what was done need not be done again
                        await slot[1].aclose()
                    elif "usage" in message:
                        on_usage(USAGES.validate_python(message["usage"]))
                    elif "outcome" in message:
                        return OUTCOMES.validate_python(message["outcome"])
                    elif "not_started" in message:
                        self._lose()
                        raise WorkerNotStarted(message["not_started"])
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(2 * CANCEL_S), suppress(self._lost_errors):
                await self._actor.cancel.remote(key)
                async for reference in messages:
                    outcome = json.loads(await reference).get("outcome")
                    if outcome is not None and outcome["status"] == "done":
                        return OUTCOMES.validate_python(outcome)
            raise
        raise self._lose()

    def _lose(self) -> WorkerLost:
        self.is_lost = True
        self._ended.set()
        return WorkerLost("The worker on the cluster has ended.")


@asynccontextmanager
async def share_ray_workers(
    address: str, size: int | None, arguments: Sequence[str], variables: Mapping[str, str]
) -> AsyncGenerator[SharedWorkers, None]:
    """Open a pool of workers on a cluster, spread over its nodes; by default one for each of its cores.

    The address `local` starts a cluster on this machine, which ends with the pool. Raises BatchRefused.
    """
    ray, lost_errors = _load_ray()
    await _check_reachable(address)
    os.environ.update(_OWN_ENVIRONMENT)
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except Exception as error:  # the library raises anything here
        logger.exception("Ray cannot be used")
        text = " ".join(str(error).split())[:300]
        advice = "if it asks for a token, set RAY_AUTH_MODE=token"
        raise BatchRefused(f"The Ray cluster at '{address}' cannot be used: {text}; {advice}.") from error
    try:
        # Workers reserve nothing: how many there are is the user's choice, and one more for a task that lost its own.
        actor_class = ray.remote(num_cpus=0, scheduling_strategy="SPREAD", max_restarts=0)(WorkerActor)
        wanted = size or round(ray.cluster_resources().get("CPU", 1)) or 1

        def make_worker() -> _RayWorker:
            return _RayWorker(ray, lost_errors, actor_class.remote(tuple(arguments), dict(variables)))

        async with share_workers(make_worker, wanted) as workers:
            yield workers
    finally:
        ray.shutdown()


async def _check_reachable(address: str) -> None:
    """Raises BatchRefused where nobody listens: the library waits a minute for that and then ends the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        return
    try:
        with anyio.fail_after(CONNECT_S):
            stream = await anyio.connect_tcp(host, int(port))
        await stream.aclose()
    except (OSError, TimeoutError) as error:
        raise BatchRefused(f"No Ray cluster answers at '{address}'; start it, or leave out --ray.") from error


def _load_ray() -> tuple[_RayLibrary, type[Exception]]:
    try:
        ray, exceptions = import_module("ray"), import_module("ray.exceptions")
    except ImportError:
        raise BatchRefused("Ray is not installed; install `kimi-wire[ray]`, or leave out --ray.") from None
    return cast("_RayLibrary", ray), exceptions.RayError
