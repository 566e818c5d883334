"""Tokens and costs as editors get them (acp spec 1.9, 3.1)."""

import pytest

from kimi.domain.events.event import StatusUpdate
from kimi.domain.turn import Cost, TokenUsage, UsageFigures, UsageTotal
from kimi.interfaces.acp.updates.usage import SessionUsage

TOKENS = TokenUsage(input_other=90, output=10, input_cache_read=5)


def status(cost: float | None, turn_cost: float | None = None, tokens: int = 95) -> StatusUpdate:
    def total(amount: float | None) -> UsageTotal:
        return UsageTotal(TOKENS, None if amount is None else Cost(amount, "USD"), 1)

    return StatusUpdate(None, tokens, 1000, TOKENS, usage=UsageFigures(total(turn_cost), total(cost)))


@pytest.mark.spec("R-328")
def test_editor_gets_the_cost_of_the_session_when_it_is_known_and_changes() -> None:
    usage = SessionUsage()
    sent = {"sessionUpdate": "usage_update", "used": 95, "size": 1000}
    assert usage.record_status(status(None)) == [sent]
    assert usage.record_status(status(None)) == []
    assert usage.record_status(status(0.5)) == [{**sent, "cost": {"amount": 0.5, "currency": "USD"}}]
    assert usage.record_status(status(0.5)) == []
    assert usage.record_status(status(0.75)) == [{**sent, "cost": {"amount": 0.75, "currency": "USD"}}]
    assert usage.repeat_update() == [{**sent, "cost": {"amount": 0.75, "currency": "USD"}}]


@pytest.mark.spec("R-328")
def test_answer_to_a_prompt_holds_the_totals_of_the_turn() -> None:
    usage = SessionUsage()
    usage.start_turn()
    assert usage.turn_usage() is None
    usage.record_status(status(0.5, 0.25))
    found = usage.turn_usage()
    assert found is not None
    assert (found["inputTokens"], found["outputTokens"], found["cachedReadTokens"]) == (95, 10, 5)
    assert found["_meta"] == {"kimi": {"cost": {"amount": 0.25, "currency": "USD"}}}
    usage.start_turn()
    usage.record_status(status(0.5, None))
    assert "_meta" not in (usage.turn_usage() or {})
