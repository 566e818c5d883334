"""A turn: what it may use up, what it used, how it ended (wire spec 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

StopReason: TypeAlias = Literal["end", "length", "content_filter", "tool_calls", "unknown"]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one model call; the three input counts add up to the whole input (wire spec 6.2)."""

    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0

    @property
    def input(self) -> int:
        """All input tokens."""
        return self.input_other + self.input_cache_read + self.input_cache_creation

    @property
    def total(self) -> int:
        """Input and output."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """`max_steps` model calls per turn; `max_attempts` tries per step, the first one included.

    `ralph_iterations` is how often a prompt is repeated by itself; -1: without limit.
    The context is compacted at `compaction_ratio` of the window, or when fewer than `reserved_tokens` are left.
    """

    max_steps: int = 1000
    max_attempts: int = 3
    ralph_iterations: int = 0
    compaction_ratio: float = 0.85
    reserved_tokens: int = 50_000


@dataclass(frozen=True, slots=True)
class TurnStatus:
    """How a turn ended. `steps` is set with `max_steps_reached` only; `stop_reason` is why the model stopped."""

    status: Literal["finished", "cancelled", "max_steps_reached"]
    steps: int | None = None
    stop_reason: StopReason | None = None
