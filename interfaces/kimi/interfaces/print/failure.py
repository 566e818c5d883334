"""What print mode says when a run fails, and its exit status (runtime spec 1.4, 1.7, 3.7)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from kimi.domain.errors import ChatProviderError, KimiError, ModelNotSet
from kimi.domain.turn import TurnStatus

_log = logging.getLogger("kimi.print")

FAILED: Final = 1
TRY_AGAIN: Final = 75
"""The exit status for a failure of the moment: the same command may work later."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not do what it was asked: one sentence, and whether another attempt may help."""

    message: str
    retryable: bool = False

    @property
    def status(self) -> int:
        """The exit status."""
        return TRY_AGAIN if self.retryable else FAILED


INTERRUPTED: Final = Failure("Interrupted by user")


def failure_of(error: Exception) -> Failure:
    """What to say of an error that `run_turn` raised."""
    if isinstance(error, ModelNotSet):
        return Failure("LLM not set")
    if isinstance(error, KimiError):
        return Failure(str(error), isinstance(error, ChatProviderError) and error.transient)
    _log.error("a run failed", exc_info=error)
    return Failure(f"Unknown error: {error}")


def failure_in(status: TurnStatus) -> Failure | None:
    """What to say of a turn that ended without being finished; None for one that was."""
    match status.status:
        case "finished":
            return None
        case "cancelled":
            return INTERRUPTED
        case "max_steps_reached":
            return Failure(f"Max number of steps reached: {status.steps}")
