"""The message and exit status of a failed run in print mode (runtime spec 1.4, 1.7, 3.7)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from kimi.domain.errors import ChatProviderError, KimiError, ModelNotSet
from kimi.domain.turn import TurnStatus

_log = logging.getLogger("kimi.print")

EXIT_FAILED: Final = 1
EXIT_TRY_AGAIN: Final = 75
"""The exit status of a temporary failure: the same command may work later."""


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a run failed: one sentence, and whether another attempt may help."""

    message: str
    retryable: bool = False

    @property
    def exit_status(self) -> int:
        """The exit status."""
        return EXIT_TRY_AGAIN if self.retryable else EXIT_FAILED


INTERRUPTED: Final = RunFailure("Interrupted by user")


def classify_error(error: Exception) -> RunFailure:
    """Return the failure for an error that `run_turn` raised."""
    if isinstance(error, ModelNotSet):
        return RunFailure(error.reason or "LLM not set")
    if isinstance(error, KimiError):
        return RunFailure(str(error), isinstance(error, ChatProviderError) and error.transient)
    _log.error("a run failed", exc_info=error)
    return RunFailure(f"Unknown error: {error}")


def classify_turn_status(status: TurnStatus) -> RunFailure | None:
    """Return the failure for a turn that ended before it was finished; None for a finished one."""
    match status.status:
        case "finished":
            return None
        case "cancelled":
            return INTERRUPTED
        case "max_steps_reached":
            return RunFailure(f"Max number of steps reached: {status.steps}")
