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
class Cost:
    """An amount of money; `currency` is an ISO 4217 code."""

    amount: float
    currency: str


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """What a model costs, for a million tokens of each kind; None for a price that is not known.

    They hold up to `max_input` tokens of input in one call, where that is set.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    currency: str = "USD"
    max_input: int | None = None


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The tokens of several model calls. `cost` is None as soon as the price of one of them is not known."""

    tokens: TokenUsage = TokenUsage()
    cost: Cost | None = None
    calls: int = 0
    """How many calls have been counted."""

    def add(self, tokens: TokenUsage, cost: Cost | None) -> UsageTotal:
        """Return the total with one more call."""
        return UsageTotal(
            TokenUsage(
                self.tokens.input_other + tokens.input_other,
                self.tokens.output + tokens.output,
                self.tokens.input_cache_read + tokens.input_cache_read,
                self.tokens.input_cache_creation + tokens.input_cache_creation,
            ),
            _add_costs(self.cost, cost) if self.calls else cost,
            self.calls + 1,
        )


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """What the running or last turn has used, and all of the session, subagents and summaries included."""

    turn: UsageTotal = UsageTotal()
    session: UsageTotal = UsageTotal()


def _add_costs(one: Cost | None, two: Cost | None) -> Cost | None:
    if one is None or two is None or one.currency != two.currency:
        return None
    return Cost(one.amount + two.amount, one.currency)


def compute_cost(prices: ModelPrices, tokens: TokenUsage) -> Cost | None:
    """Return what a call costs; None if a price that it needs is not known."""
    if prices.max_input is not None and tokens.input > prices.max_input:
        return None
    amount = 0.0
    for count, price in (
        (tokens.input_other, prices.input),
        (tokens.output, prices.output),
        (tokens.input_cache_read, prices.cache_read),
        (tokens.input_cache_creation, prices.cache_write),
    ):
        if count and price is None:
            return None
        amount += count * (price or 0.0) / 1_000_000
    return Cost(amount, prices.currency)


def format_usage(total: UsageTotal) -> str:
    """Return tokens and cost for people: `12.3k in, 950 out, 0.0412 USD`; without the cost where it is not known."""
    tokens = f"{format_count(total.tokens.input)} in, {format_count(total.tokens.output)} out"
    return tokens if total.cost is None else f"{tokens}, {format_cost(total.cost)}"


def format_cost(cost: Cost) -> str:
    """Return a cost with two digits behind the point, or four below one unit: `1.25 USD`, `0.0412 USD`."""
    return f"{cost.amount:.{4 if cost.amount < 1 else 2}f} {cost.currency}"


def format_count(number: int) -> str:
    """Format a count: 950, 4.2k, 1.0M."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


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
