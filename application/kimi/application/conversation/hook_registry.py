"""The hooks of a conversation: commands of the configuration, subscriptions of the client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from kimi.application.ports import RunHook
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import ALLOW, HOOK_EVENTS, CommandHook, Hook, HookSubscription, SearchExpression, SearchOutcome

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class DetachedHookBatch:
    """The hooks of one event that run detached, so that nothing waits for them.

    `owner` is the turn in which they were fired. With `is_resolved`, HookResolved was emitted: the batch emits no
    further events.
    """

    owner: object
    event: str
    target: str
    started_at: float
    request_ids: list[str] = field(default_factory=list[str])
    is_resolved: bool = False


class HookRegistry:
    """The hooks that a conversation and its subagents share; `run_hooks` runs them.

    `run` runs a command, `search` searches a matcher in the target of an event. `session_id` and `work_dir` are passed
    to every hook. `detached_batches` holds the batches of detached hooks whose turn has not ended.
    """

    def __init__(
        self,
        commands: Sequence[CommandHook] = (),
        run: RunHook | None = None,
        *,
        search: SearchExpression | None = None,
        session_id: str = "",
        work_dir: str = "",
    ) -> None:
        self.commands = tuple(commands)
        self.subscriptions: tuple[HookSubscription, ...] = ()
        self.run_command = run or _run_no_command
        self.search = search or _search_nothing
        self.session_id = session_id
        self.work_dir = work_dir
        self._task_group: TaskGroup | None = None
        self.detached_batches: list[DetachedHookBatch] = []
        self._running = 0
        self._idle = anyio.Event()
        self.watched_events = frozenset(hook.event for hook in self.commands)
        self._report_bad_matchers(self.commands)

    @property
    def task_group(self) -> TaskGroup | None:
        """The task group of detached hooks; without one they are awaited like all others."""
        return self._task_group

    def set_task_group(self, tasks: TaskGroup | None) -> None:
        """Set the task group of detached hooks; None when the group is about to end."""
        self._task_group = tasks

    @property
    def all_hooks(self) -> tuple[Hook, ...]:
        """All hooks: first the commands, then the subscriptions, each in their own order."""
        return (*self.commands, *self.subscriptions)

    def subscribe(self, subscriptions: Iterable[HookSubscription]) -> None:
        """Replace the subscriptions of the client; those to unknown events are logged and ignored (W-46)."""
        wanted = tuple(subscriptions)
        self.subscriptions = tuple(hook for hook in wanted if hook.event in HOOK_EVENTS)
        self.watched_events = frozenset(hook.event for hook in self.all_hooks)
        for hook in wanted:
            if hook.event not in HOOK_EVENTS:
                logger.warning("hook subscription %r ignored: there is no event %r", hook.id, hook.event)
        self._report_bad_matchers(self.subscriptions)

    def start_detached(self, tasks: TaskGroup, run: Callable[[], Awaitable[None]]) -> None:
        """Start `run` as a detached task of the group `tasks`. `run` must not raise."""
        # Counted here and not in the task, which may not have begun when `wait_until_idle` is called.
        self._running += 1
        tasks.start_soon(self._run_detached, run)

    async def wait_until_idle(self) -> None:
        """Wait until no detached hooks are running."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _report_bad_matchers(self, hooks: Iterable[Hook]) -> None:
        for hook in hooks:
            outcome = self.search(hook.matcher, "") if hook.matcher else "absent"
            if outcome == "invalid":
                logger.warning("a hook on %s never fires: %r is not a regular expression", hook.event, hook.matcher)
            elif outcome == "unbounded":
                logger.warning(
                    "a hook on %s fires for every target: its matcher %r needs look-around or a reference to a group, "
                    "which are not supported",
                    hook.event,
                    hook.matcher,
                )

    async def _run_detached(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        finally:
            self._running -= 1
            self._idle.set()


def _search_nothing(expression: str, text: str) -> SearchOutcome:
    logger.error("nothing here can search the matcher %r of a hook", expression)
    return "unbounded"


async def _run_no_command(hook: CommandHook, payload: JsonObject) -> HookAnswer:
    logger.error("nothing here can run the hook command %r", hook.command)
    return ALLOW
