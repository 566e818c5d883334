"""The tokens of a turn and how full the context is, as the client is told of them (acp spec 1.9, 3.1)."""

from __future__ import annotations

from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import StatusUpdate
from kimi.domain.turn import TokenUsage
from kimi.interfaces.acp.updates.result_content import Json


class Usage:
    """What the model calls of a session have used."""

    def __init__(self) -> None:
        self._of_turn: TokenUsage | None = None
        self._used: int | None = None
        self._size: int | None = None
        self._told: tuple[int, int] | None = None

    def new_turn(self) -> None:
        """The tokens of another turn are counted from now on."""
        self._of_turn = None

    def learn(self, status: StatusUpdate) -> list[Json]:
        """Take in a model call; gives the update that says how full the context is, when that has changed."""
        if status.token_usage is not None:
            self._of_turn = _sum(self._of_turn, status.token_usage)
        if status.context_tokens is not None:
            self._used = status.context_tokens
        if status.max_context_tokens is not None:
            self._size = status.max_context_tokens
        return self._update()

    def update_again(self) -> list[Json]:
        """The last update once more, if anything is known."""
        self._told = None
        return self._update()

    def of_turn(self) -> JsonObject | None:
        """The tokens of the turn so far, for the answer to the prompt; None when no model told any."""
        used = self._of_turn
        if used is None:
            return None
        return {
            "totalTokens": max(used.total, 0),
            "inputTokens": max(used.input, 0),
            "outputTokens": max(used.output, 0),
            "cachedReadTokens": max(used.input_cache_read, 0),
            "cachedWriteTokens": max(used.input_cache_creation, 0),
        }

    def _update(self) -> list[Json]:
        if self._used is None or not self._size or self._size < 0:
            return []
        window = (min(max(self._used, 0), self._size), self._size)
        if window == self._told:
            return []
        self._told = window
        return [{"sessionUpdate": "usage_update", "used": window[0], "size": window[1]}]


def _sum(one: TokenUsage | None, two: TokenUsage) -> TokenUsage:
    if one is None:
        return two
    return TokenUsage(
        one.input_other + two.input_other,
        one.output + two.output,
        one.input_cache_read + two.input_cache_read,
        one.input_cache_creation + two.input_cache_creation,
    )
