"""Token usage of the turn and of the context, as it is sent to the client (acp spec 1.9, 3.1)."""

from __future__ import annotations

from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import StatusUpdate
from kimi.domain.turn import Cost, TokenUsage
from kimi.interfaces.acp.updates.result_content import JsonDict


class SessionUsage:
    """Adds up the tokens of a session's model calls."""

    def __init__(self) -> None:
        self._turn_usage: TokenUsage | None = None
        self._used_tokens: int | None = None
        self._window_tokens: int | None = None
        self._cost: Cost | None = None
        self._turn_cost: Cost | None = None
        self._sent: JsonDict | None = None

    def start_turn(self) -> None:
        """Reset the count for a new turn."""
        self._turn_usage = self._turn_cost = None

    def record_status(self, status: StatusUpdate) -> list[JsonDict]:
        """Record a model call; return an update of the context usage if that, or the cost, has changed."""
        if status.usage is not None:
            self._turn_usage, self._turn_cost = status.usage.turn.tokens, status.usage.turn.cost
            self._cost = status.usage.session.cost
        elif status.token_usage is not None:
            self._turn_usage = _add_usage(self._turn_usage, status.token_usage)
        if status.context_tokens is not None:
            self._used_tokens = status.context_tokens
        if status.max_context_tokens is not None:
            self._window_tokens = status.max_context_tokens
        return self._build_update()

    def repeat_update(self) -> list[JsonDict]:
        """Return the last update again; nothing if no usage is known."""
        self._sent = None
        return self._build_update()

    def turn_usage(self) -> JsonObject | None:
        """Return the tokens of the turn so far, for the answer to the prompt; None if no model reported any."""
        used = self._turn_usage
        if used is None:
            return None
        return {
            "totalTokens": max(used.total, 0),
            "inputTokens": max(used.input, 0),
            "outputTokens": max(used.output, 0),
            "cachedReadTokens": max(used.input_cache_read, 0),
            "cachedWriteTokens": max(used.input_cache_creation, 0),
            **({"_meta": {"kimi": {"cost": _shape_cost(self._turn_cost)}}} if self._turn_cost is not None else {}),
        }

    def _build_update(self) -> list[JsonDict]:
        if self._used_tokens is None or not self._window_tokens or self._window_tokens < 0:
            return []
        used = min(max(self._used_tokens, 0), self._window_tokens)
        update: JsonDict = {"sessionUpdate": "usage_update", "used": used, "size": self._window_tokens}
        if self._cost is not None:
            update["cost"] = _shape_cost(self._cost)
        if update == self._sent:
            return []
        self._sent = update
        return [dict(update)]


def _shape_cost(cost: Cost) -> JsonDict:
    return {"amount": round(cost.amount, 8), "currency": cost.currency}


def _add_usage(one: TokenUsage | None, two: TokenUsage) -> TokenUsage:
    if one is None:
        return two
    return TokenUsage(
        one.input_other + two.input_other,
        one.output + two.output,
        one.input_cache_read + two.input_cache_read,
        one.input_cache_creation + two.input_cache_creation,
    )
