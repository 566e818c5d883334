"""One live conversation: its history, the running turn, waiting requests and the event channel.

State only: every verb is a use-case in a module of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from kimi.application.conversation.background_tasks import BackgroundTaskRegistry
from kimi.application.conversation.event_channel import Delivery, EventChannel
from kimi.application.conversation.event_recorder import EventRecorder
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.conversation.pending_requests import PendingRequests
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.application.conversation.subagent_stream import SubagentStream
from kimi.application.ports import ChatModel, LoadSystemPrompt, NewId, Now, OpenModel, SessionFiles, ToolCallEvents
from kimi.application.toolset.toolset import Toolset
from kimi.domain.client import Client, user_agent_suffix
from kimi.domain.content.message import Message
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import StateError
from kimi.domain.events.event import Event
from kimi.domain.history.history import History
from kimi.domain.history.session import ContextRecord, SessionState, SystemPromptRecord
from kimi.domain.permissions.approval import Policy
from kimi.domain.tools.repeat_guard import RepeatGuard
from kimi.domain.turn import TurnLimits

if TYPE_CHECKING:
    from kimi.application.conversation.model_catalog import ModelCatalog, ModelChoice
    from kimi.application.conversation.project import LoadProject, Project
    from kimi.domain.agents.dmail import DMail
    from kimi.domain.agents.subagent import SubagentIdentity

BUSY = "An agent turn is already in progress"
IDLE = "No agent turn is in progress"


def ignore_approval_wait(is_waiting: bool) -> None:
    """Whether a conversation waits for an approval matters to those only who watch it from outside of a turn."""


@dataclass(slots=True)
class RunningTurn:
    """The turn that runs now. Cancelling `scope` ends it; `step` is the number of the open step or 0."""

    id: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    step: int = 0
    open_calls: list[str] = field(default_factory=list[str])
    """Calls that the client was told of and that have no result yet, in order."""
    steers: deque[UserInput] = field(default_factory=deque["UserInput"])
    """Messages that were accepted while the turn ran and are not part of it yet."""
    accepts_steers: bool = True
    held_answers: dict[str, Message] = field(default_factory=dict[str, Message])
    """Answers that are known but wait for an earlier call of the same message, by call id."""
    is_cancelled: bool = False
    """Was it cancelled, by its own scope or together with what it is part of?"""
    is_closed: bool = False
    """Was everything closed that its failure left open?"""
    has_rejected_call: bool = False
    """Did the person reject a call without a word?"""
    total_steps: int = 0
    """In all turns inside of this one together."""


@dataclass(slots=True)
class SharedPolicy:
    """The policy that a conversation and its subagents share: a change counts for all of them at once."""

    policy: Policy


class Conversation:
    """The state that the use-cases of one conversation share.

    With a `parent` it is the conversation of a `subagent`: it has a history, a toolset and a turn of its own, and
    shares what belongs to the person: policy, hooks, waiting requests, client and event channel.

    `emit` is the one way to the driver: it records first, then delivers. `append` is the one way
    into the history: it stores first, then changes the memory.
    """

    def __init__(
        self,
        *,
        files: SessionFiles,
        open_model: OpenModel,
        toolset: Toolset,
        policy: Policy,
        limits: TurnLimits,
        load_system_prompt: LoadSystemPrompt,
        mark_last: Callable[[str], None],
        now: Now,
        new_id: NewId,
        plans_dir: str | None = None,
        parent: Conversation | None = None,
        subagent: SubagentIdentity | None = None,
        hooks: HookRegistry | None = None,
        skills: SkillRegistry | None = None,
        background: BackgroundTaskRegistry | None = None,
        load_project: LoadProject | None = None,
        load_models: Callable[[], ModelCatalog] | None = None,
    ) -> None:
        self.files = files
        self._state_lock = Lock()
        self.subagent = subagent
        self.client = parent.client if parent else Client()
        self.model: ChatModel | None = open_model(files.id, lambda: user_agent_suffix(self.client))
        self.toolset = toolset
        self.shared_policy = parent.shared_policy if parent else SharedPolicy(policy)
        self.hooks = parent.hooks if parent else hooks or HookRegistry(session_id=files.id)
        self.skills = parent.skills if parent else skills or SkillRegistry()
        self.background = background or BackgroundTaskRegistry()
        self.limits = limits
        self.plans_dir = plans_dir
        self.is_plan_reminder_due = False
        self.is_plan_mode_unannounced = False
        self.pending_dmail: DMail | None = None
        self.min_compaction_tokens = (
            0  # tokens below which no automatic compaction is tried, after one that did not help
        )
        self.now = now
        self.new_id = new_id
        self.history = History(files.load_context())
        self.channel = parent.channel if parent else EventChannel()
        self.pending_requests = parent.pending_requests if parent else PendingRequests()
        self.tool_call_events: ToolCallEvents | None = parent.tool_call_events if parent else None
        self.repeat_guard = RepeatGuard()
        self.turn: RunningTurn | None = None
        self.notify_approval_wait: Callable[[bool], None] = ignore_approval_wait
        self._pending_records: list[ContextRecord] = []
        self.is_scratch_context = False
        self.model_choice: ModelChoice | None = None  # None until another model than that of the start is chosen
        self._load_project = load_project
        self._load_models = load_models
        self._load_system_prompt = load_system_prompt
        self._mark_last: Callable[[str], None] | None = mark_last
        self._recorder = EventRecorder(files, now)
        self._subagent_stream = (
            SubagentStream(subagent, files, now, parent.emit_nowait) if parent and subagent else None
        )

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.files.id

    @property
    def policy(self) -> Policy:
        """What may be done, as it stands now."""
        return self.shared_policy.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.shared_policy.policy = policy

    @property
    def is_empty(self) -> bool:
        """Has nothing ever happened in this session?"""
        return not self.files.is_resumed and not self.history.records

    async def emit(self, event: Event) -> None:
        """Record `event`, then put it on the channel and wait for room there. Raises StoreFailed; the event is then
        not delivered. When it is cancelled the event is out."""
        self.emit_nowait(event)
        await self.channel.wait_for_capacity()

    def emit_nowait(self, event: Event) -> None:
        """`emit` without waiting for room on the channel. Raises StoreFailed."""
        if self._subagent_stream is not None:
            self._subagent_stream.send(event)
        else:
            self.channel.put_nowait(Delivery(event, self._recorder.record(event)))

    async def join_channel(self) -> None:
        """Wait until the driver has dealt with every event; a subagent's are waited for by its parent."""
        if self.subagent is None:
            await self.channel.join()

    def flush(self) -> None:
        """Write the part of the event log that is still being merged."""
        self._recorder.flush()

    def append(self, *records: ContextRecord) -> None:
        """Store records and add them to the history. Raises StoreFailed; the history is then unchanged."""
        due = records
        if not self.is_scratch_context:
            due = (*self._pending_records, *records)
            self.files.append_context(due)
            self._pending_records.clear()
        for record in due:
            self.history.append(record)

    def add_pending_records(self, *records: ContextRecord) -> None:
        """Keep records that could not be stored: they go before the next ones, when there is room again."""
        self._pending_records += records

    @property
    def has_pending_records(self) -> bool:
        """Are there such records? They answer whatever the history leaves open."""
        return bool(self._pending_records)

    def ensure_system_prompt(self) -> str:
        """The frozen system prompt of the session; made and stored when there is none yet."""
        if self.history.system_prompt is None:
            self._freeze_system_prompt(self._load_system_prompt())
        return self.history.system_prompt or ""

    def replace_history(self, records: Sequence[ContextRecord]) -> None:
        """Start the context anew with these records; the old file is kept (R-64). Raises StoreFailed."""
        if not self.is_scratch_context:
            self.files.rotate_context(records)
            self._pending_records.clear()
        self.history = History(records)
        self.min_compaction_tokens = 0

    @contextmanager
    def scratch_context(self) -> Generator[None, None, None]:
        """A context of its own with the same system prompt; nothing of it is stored, and it is gone on leaving."""
        prompt = SystemPromptRecord(self.ensure_system_prompt())
        kept, self.history = self.history, History([prompt])
        self.is_scratch_context = True
        try:
            yield
        finally:
            self.history, self.is_scratch_context, self.min_compaction_tokens = kept, False, 0

    def require_project(self) -> Project:
        """The place where the agent works. Raises StateError where there is none."""
        if self._load_project is None:
            raise StateError("This command is not supported here")
        return self._load_project()

    def require_models(self) -> ModelCatalog:
        """The models to choose from. Raises StateError where there is no choice."""
        if self._load_models is None:
            raise StateError("The model cannot be switched here")
        return self._load_models()

    def begin_turn(self) -> RunningTurn:
        """Mark a turn as running. Raises StateError when one runs already."""
        if self.turn is not None:
            raise StateError(BUSY)
        self.turn = RunningTurn(self.new_id())
        return self.turn

    async def mark_last(self) -> None:
        """Make this the session that `--continue` means: once, at its first turn, so that a kill finds it.

        Also when that turn is cancelled already: it has begun. Raises StoreFailed; the next turn then tries again.
        """
        if self._mark_last is None:
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._mark_last, self.id)
        self._mark_last = None

    def remember_approval(self, key: str) -> None:
        """Approve an action for the session, in memory and on disk."""
        self.policy = replace(self.policy, remembered=self.policy.remembered | {key})
        self.update_state(lambda state: replace(state, auto_approve_actions=self.policy.remembered))

    def forget_approval(self, key: str) -> None:
        """Ask again about an action that was approved for the session, in memory and on disk. Raises StoreFailed."""
        if key in self.policy.remembered:
            self.policy = replace(self.policy, remembered=self.policy.remembered - {key})
            self.update_state(lambda state: replace(state, auto_approve_actions=self.policy.remembered))

    def update_state(self, change: Callable[[SessionState], SessionState]) -> None:
        """Change the stored state of the session."""
        with self._state_lock:
            self.files.save_state(change(self.files.state))

    async def update_state_in_thread(self, change: Callable[[SessionState], SessionState]) -> None:
        """`update_state` in a thread: other sessions do not wait for the disk. Raises StoreFailed."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.update_state, change)

    def _freeze_system_prompt(self, text: str) -> None:
        record = SystemPromptRecord(text)
        if self.history.records:
            # Files of old generations lack the record: it must be the first line all the same.
            self.replace_history([record, *self.history.records])
        else:
            self.append(record)
