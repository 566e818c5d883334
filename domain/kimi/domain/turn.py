"""A turn: its limits, its usage and how it ended (wire spec 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

StopReason: TypeAlias = Literal["end", "length", "content_filter", "tool_calls", "unknown"]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens of one model call; the three input counts add up to the whole input (wire spec 6.2)."""

    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0

    @property
    def input(self) -> int:
        """The number of all input tokens."""
        return self.input_other + self.input_cache_read + self.input_cache_creation

    @property
    def total(self) -> int:
        """The number of input and output tokens."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The limits of a turn: `max_steps` model calls per turn, `max_attempts` tries per step with the first included.

    `ralph_iterations` is how often a prompt is repeated automatically; -1 means without limit. The context is compacted
    at `compaction_ratio` of the window, or when fewer than `reserved_tokens` are left.
    """

    max_steps: int = 1000
    max_attempts: int = 3
    ralph_iterations: int = 0
    compaction_ratio: float = 0.85
    reserved_tokens: int = 50_000


@dataclass(frozen=True, slots=True)
class TurnStatus:
    """How a turn ended. `steps` is set only with `max_steps_reached`; `stop_reason` is why the model stopped."""

    status: Literal["finished", "cancelled", "max_steps_reached"]
    steps: int | None = None
    stop_reason: StopReason | None = None
