"""The turn that runs in a conversation, and who may begin one."""

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
    repeat_guard: RepeatGuard = field(default_factory=RepeatGuard)
    """Calls that the model repeats; another one after each new prompt."""
    is_cancelled: bool = False
    """Whether it was cancelled, by its own scope or together with what it is part of."""
    is_closed: bool = False
    """Whether everything was closed that its failure left open."""
    has_rejected_call: bool = False
    """Whether the user rejected a call without a word."""
    total_steps: int = 0
    """In all turns inside of this one together."""


class TurnSlot:
    """The place for the one turn that may run in a conversation, and the limits of each turn."""

    def __init__(self, limits: TurnLimits, new_id: NewId) -> None:
        self.limits = limits
        self._new_id = new_id
        self._current: RunningTurn | None = None

    @property
    def current(self) -> RunningTurn | None:
        """The turn that runs now."""
        return self._current

    def begin(self) -> RunningTurn:
        """Mark a turn as running; `run_turn` ends it. Raises StateError when one runs already.

        Apart from `run_turn`, so that a driver can refuse a second prompt before it starts a task for it.
        """
        if self._current is not None:
            raise StateError(BUSY)
        self._current = RunningTurn(self._new_id())
        return self._current

    def end(self) -> None:
        """Mark that no turn runs any more. Only `run_turn` calls it, when everything of the turn is out."""
        self._current = None
