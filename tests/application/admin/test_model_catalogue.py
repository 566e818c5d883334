"""Data of models from a catalogue: what is taken, and what is left because the file does not say it for certain."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.application.admin.configuration import ConfiguredModel
from kimi.application.admin.model_catalogue import ModelImport, plan_import
from kimi.application.admin.setup import SetupError
from kimi.domain.turn import ModelPrices

pytestmark = pytest.mark.spec("R-322")

HERE = "https://api.here.test/v1"


def configured(**changes: Any) -> ConfiguredModel:
    given: dict[str, Any] = {"alias": "k", "provider": "p", "base_url": HERE, "model": "k2", "context_size": 1000}
    return ConfiguredModel(**{**given, **changes})


def listed(**changes: Any) -> dict[str, Any]:
    """An entry as models.dev lists it."""
    entry = {
        "id": "k2",
        "reasoning": True,
        "modalities": {"input": ["text", "image", "video", "audio"], "output": ["text"]},
        "limit": {"context": 262_144, "output": 8192},
        "cost": {"input": 0.6, "output": 2.5, "cache_read": 0.15},
    }
    return {**entry, **changes}


def plan(catalogue: object, model: ConfiguredModel | None = None) -> ModelImport:
    [one] = plan_import(catalogue, [model or configured()])
    return one


def test_own_layout_sets_size_capabilities_and_prices() -> None:
    entry = {
        "context_size": 200_000,
        "capabilities": ["image_in", "flying"],
        "prices": {"input": 4, "output": 16, "cache_read": 1, "currency": "CNY", "max_input": 32_000},
    }
    found = plan({"models": {"k2": entry}}, configured(capabilities=frozenset({"thinking"})))
    assert found.changes == {
        ("models", "k", "max_context_size"): 200_000,
        ("models", "k", "capabilities"): ("image_in", "thinking"),
        ("models", "k", "prices", "input"): 4.0,
        ("models", "k", "prices", "output"): 16.0,
        ("models", "k", "prices", "cache_read"): 1.0,
        ("models", "k", "prices", "currency"): "CNY",
        ("models", "k", "prices", "max_input"): 32_000,
    }


@pytest.mark.parametrize(
    ("provider", "entry"),
    [
        (configured(), {"api": HERE + "/"}),
        (configured(), {"api": "https://api.here.test/other"}),
        (configured(base_url="https://api.openai.com/v1"), None),
    ],
)
def test_widespread_layout_is_read_for_the_provider_of_the_model(
    provider: ConfiguredModel, entry: dict[str, Any] | None
) -> None:
    dearer = listed(cost={"input": 9, "output": 9}, limit={"context": 5})
    own = {"openai": {"models": {"k2": listed()}}} if entry is None else {"here": {**entry, "models": {"k2": listed()}}}
    found = plan({"elsewhere": {"api": "https://else.test", "models": {"k2": dearer}}, **own}, provider)
    assert found.data is not None
    assert (found.data.context_size, found.data.capabilities) == (262_144, ("image_in", "thinking", "video_in"))
    assert found.data.prices == ModelPrices(0.6, 2.5, 0.15)


def test_a_known_model_of_an_unknown_provider_gets_what_all_agree_on_and_no_price() -> None:
    other = listed(cost={"input": 1, "output": 2}, modalities={"input": ["text", "image"]})
    catalogue = {
        "a": {"api": "https://a.test", "models": {"k2": listed()}},
        "p": {"api": "https://b.test", "models": {"k2": other}},
    }
    found = plan(catalogue)
    assert found.data is not None
    assert (found.data.context_size, found.data.capabilities) == (262_144, ("image_in", "thinking"))
    assert found.data.prices is None
    assert found.has_unclear_prices


@pytest.mark.parametrize(
    ("cost", "prices"),
    [
        ({"input": 0, "output": 0}, None),
        ({"input": 1, "output": 2, "reasoning": 3}, None),
        ({"input": 1, "output": 2, "reasoning": 2}, ModelPrices(1, 2)),
        ({"input": 1, "output": 2, "context_over_200k": {"input": 2}}, ModelPrices(1, 2, max_input=200_000)),
        ({"input": 1, "output": 2, "context_over_much": {"input": 2}}, None),
        ({"input": 1, "output": 2, "tiers": []}, None),
        ({"input": "1", "output": 2}, None),
        ({"input": 1, "output": -2}, None),
        ({"input": True, "output": 2}, None),
        ({"input": 1}, None),
        (5, None),
    ],
)
def test_a_price_is_taken_only_where_it_is_certain(cost: object, prices: ModelPrices | None) -> None:
    found = plan({"here": {"api": HERE, "models": {"k2": listed(cost=cost)}}})
    assert found.data is not None
    assert found.data.prices == prices


def test_what_is_configured_already_is_not_changed() -> None:
    able = frozenset({"image_in", "thinking", "video_in"})
    same = configured(context_size=262_144, capabilities=able, prices=ModelPrices(0.6, 2.5, 0.15))
    assert plan({"here": {"api": HERE, "models": {"k2": listed()}}}, same).changes == {}


def test_prices_that_are_gone_are_removed_with_the_new_ones() -> None:
    old = configured(prices=ModelPrices(9, 9, 9, 9))
    changes = plan({"models": {"k2": {"prices": {"input": 1, "output": 2}}}}, old).changes
    assert changes["models", "k", "prices", "cache_read"] is None
    assert changes["models", "k", "prices", "input"] == 1.0


def test_an_unknown_model_is_told_and_left() -> None:
    found = plan({"models": {"other": {"context_size": 5}}})
    assert (found.data, found.changes) == (None, {})


@pytest.mark.parametrize(
    "odd", [{"models": {"k2": 5}}, {"here": {"api": 5, "models": {"k2": {"limit": [], "cost": None}}}}]
)
def test_odd_entries_change_nothing(odd: object) -> None:
    assert plan(odd).changes == {}


@pytest.mark.parametrize("text", [None, 5, [], {}, {"a": 1}, {"models": []}, {"a": {"models": {}}}])
def test_a_file_that_is_no_catalogue_is_refused(text: object) -> None:
    with pytest.raises(SetupError, match="is no catalogue of models"):
        plan_import(text, [configured()])
