"""The running turn of a conversation, and the slot that admits one turn at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import anyio

from kimi.application.ports import NewId
from kimi.domain.content.message import Message
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import StateError
from kimi.domain.tools.repeat_guard import RepeatGuard
from kimi.domain.turn import TurnLimits

BUSY = "An agent turn is already in progress"
IDLE = "No agent turn is in progress"


@dataclass(slots=True)
class RunningTurn:
    """A turn that is running. Cancelling `scope` ends it; `step` is the number of the open step, 0 between steps."""

    id: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    step: int = 0
    open_calls: list[str] = field(default_factory=list[str])
    """The ids of the calls that were announced to the client and have no result yet, in order."""
    steers: deque[UserInput] = field(default_factory=deque["UserInput"])
    """Messages that were accepted during the turn and are not in the history yet."""
    accepts_steers: bool = True
    held_answers: dict[str, Message] = field(default_factory=dict[str, Message])
    """Tool messages that wait for the result of an earlier call of the same assistant message, by call id."""
    repeat_guard: RepeatGuard = field(default_factory=RepeatGuard)
    """Counts the calls that the model repeats; replaced at each new prompt."""
    is_cancelled: bool = False
    """Whether the turn was cancelled, by its own scope or by one around it."""
    is_closed: bool = False
    """Whether all calls that a failure left open have been answered."""
    has_rejected_call: bool = False
    """Whether the user rejected a call without feedback."""
    total_steps: int = 0
    """The number of steps in this turn and all turns nested in it."""


class TurnSlot:
    """The slot for the one turn that may run in a conversation, and the limits of each turn."""

    def __init__(self, limits: TurnLimits, new_id: NewId) -> None:
        self.limits = limits
        self._new_id = new_id
        self._current: RunningTurn | None = None

    @property
    def current(self) -> RunningTurn | None:
        """The turn that is running; None between turns."""
        return self._current

    def begin(self) -> RunningTurn:
        """Mark a turn as running; `run_turn` ends it. Raises StateError when one is running already.

        This is separate from `run_turn`, so that a driver can refuse a second prompt before it starts a task for it.
        """
        if self._current is not None:
            raise StateError(BUSY)
        self._current = RunningTurn(self._new_id())
        return self._current

    def end(self) -> None:
        """Mark the turn as ended. Only `run_turn` calls this, after the driver has handled all events of the turn."""
        self._current = None
