"""One live conversation: its history, the running turn, waiting requests and the event channel.

State only: every verb is a use-case in a module of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread

from kimi.application.channel import Delivery, EventChannel
from kimi.application.ports import ChatModel, LoadSystemPrompt, NewId, Now, OpenModel, SessionFiles
from kimi.application.recorder import Recorder
from kimi.application.toolset import Toolset
from kimi.application.waiting import WaitingRequests
from kimi.domain.approval import Policy
from kimi.domain.client import Client, product
from kimi.domain.content import UserInput
from kimi.domain.errors import StateError
from kimi.domain.event import Event
from kimi.domain.history import History
from kimi.domain.message import Message
from kimi.domain.repeat import RepeatGuard
from kimi.domain.session import ContextRecord, SessionState, SystemPromptRecord
from kimi.domain.turn import TurnLimits

BUSY = "An agent turn is already in progress"
IDLE = "No agent turn is in progress"


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
    answers: dict[str, Message] = field(default_factory=dict[str, Message])
    """Answers that are known but wait for an earlier call of the same message, by call id."""


class Conversation:
    """The state that the use-cases of one conversation share.

    `emit` is the one way to the driver: it records first, then delivers (house rules). `append` is the one way
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
    ) -> None:
        self.files = files
        self.client = Client()
        self.model: ChatModel | None = open_model(files.id, lambda: product(self.client))
        self.toolset = toolset
        self.policy = policy
        self.limits = limits
        self.now = now
        self.new_id = new_id
        self.history = History(files.load_context())
        self.channel = EventChannel()
        self.waiting = WaitingRequests()
        self.repeats = RepeatGuard()
        self.turn: RunningTurn | None = None
        self._load_system_prompt = load_system_prompt
        self._mark_last: Callable[[str], None] | None = mark_last
        self._recorder = Recorder(files, now)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.files.id

    @property
    def is_empty(self) -> bool:
        """Has nothing ever happened in this session?"""
        return not self.files.resumed and not self.history.records

    async def emit(self, event: Event) -> None:
        """Record `event`, then put it on the channel. Raises StoreFailed; the event is then not delivered."""
        await self.channel.send(Delivery(event, self._recorder.record(event)))

    def flush(self) -> None:
        """Write the part of the event log that is still being merged."""
        self._recorder.flush()

    def append(self, *records: ContextRecord) -> None:
        """Store records and add them to the history. Raises StoreFailed; the history is then unchanged."""
        self.files.append_context(records)
        for record in records:
            self.history.append(record)

    def system_prompt(self) -> str:
        """The frozen system prompt of the session; made and stored when there is none yet."""
        if self.history.system_prompt is None:
            self._freeze_system_prompt(self._load_system_prompt())
        return self.history.system_prompt or ""

    def replace_history(self, records: Sequence[ContextRecord]) -> None:
        """Start the context anew with these records; the old file is kept (R-64). Raises StoreFailed."""
        self.files.rotate_context(records)
        self.history = History(records)

    def begin_turn(self) -> RunningTurn:
        """Mark a turn as running. Raises StateError when one runs already."""
        if self.turn is not None:
            raise StateError(BUSY)
        self.turn = RunningTurn(self.new_id())
        return self.turn

    async def mark_last(self) -> None:
        """Make this the session that `--continue` means: once, at its first turn, so that a kill finds it."""
        mark, self._mark_last = self._mark_last, None
        if mark is not None:
            await anyio.to_thread.run_sync(mark, self.id)

    def remember_approval(self, key: str) -> None:
        """Approve an action for the session, in memory and on disk."""
        self.policy = replace(self.policy, remembered=self.policy.remembered | {key})
        self.update_state(lambda state: replace(state, auto_approve_actions=self.policy.remembered))

    def update_state(self, change: Callable[[SessionState], SessionState]) -> None:
        """Change the stored state of the session."""
        self.files.save_state(change(self.files.state))

    def _freeze_system_prompt(self, text: str) -> None:
        record = SystemPromptRecord(text)
        if self.history.records:
            # Files of old generations lack the record: it must be the first line all the same.
            self.replace_history([record, *self.history.records])
        else:
            self.append(record)
