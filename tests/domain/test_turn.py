"""Tokens and what they cost: never more than is known."""

import pytest

from kimi.domain.turn import Cost, ModelPrices, TokenUsage, UsageTotal, compute_cost, format_usage

PRICES = ModelPrices(2.0, 10.0, cache_read=0.5, cache_write=None, max_input=200_000)


@pytest.mark.spec("R-323")
@pytest.mark.parametrize(
    ("tokens", "cost"),
    [
        (TokenUsage(100_000, 10_000), 0.3),
        (TokenUsage(100_000, 10_000, 100_000), 0.35),
        (TokenUsage(0, 0), 0.0),
        (TokenUsage(1, 0, input_cache_creation=1), None),
        (TokenUsage(150_000, 0, 50_001), None),
    ],
)
def test_a_call_costs_what_is_known_of_every_kind_of_token(tokens: TokenUsage, cost: float | None) -> None:
    found = compute_cost(PRICES, tokens)
    assert (None if found is None else round(found.amount, 9)) == cost
    assert found is None or found.currency == "USD"


@pytest.mark.spec("R-323")
def test_a_total_has_no_cost_once_the_price_of_a_call_is_unknown() -> None:
    tokens = TokenUsage(1_000, 50, 200, 30)
    total = UsageTotal().add(tokens, Cost(0.5, "USD")).add(tokens, Cost(0.25, "USD"))
    assert total == UsageTotal(TokenUsage(2_000, 100, 400, 60), Cost(0.75, "USD"), 2)
    assert total.add(tokens, Cost(1.0, "CNY")).cost is None
    unknown = total.add(tokens, None)
    assert unknown.cost is None
    assert unknown.add(tokens, Cost(1.0, "USD")).cost is None
    assert unknown.tokens == TokenUsage(3_000, 150, 600, 90)


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (UsageTotal(TokenUsage(900, 12)), "900 in, 12 out"),
        (UsageTotal(TokenUsage(12_300, 950), Cost(0.04123, "USD")), "12.3k in, 950 out, 0.0412 USD"),
        (UsageTotal(TokenUsage(1_000_000, 2_000), Cost(3.5, "CNY")), "1.0M in, 2.0k out, 3.50 CNY"),
    ],
)
def test_usage_is_shown_with_its_cost_where_that_is_known(total: UsageTotal, text: str) -> None:
    assert format_usage(total) == text
