"""Use-case catalogue: take data of models from a file that the user names (runtime spec 3.10).

Two layouts are read: that of this program, `{"models": {ID: {...}}}`, and that of models.dev, which names providers
with their models. Nothing is fetched, and what the file does not say for certain is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

from kimi.application.admin.configuration import ConfigChanges, ConfiguredModel
from kimi.application.admin.setup import CAPABILITIES, SetupError
from kimi.domain.turn import ModelPrices

_PROVIDER_BY_HOST: Final[Mapping[str, str]] = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "generativelanguage.googleapis.com": "google",
    "aiplatform.googleapis.com": "google-vertex",
}
"""What models.dev calls the providers for which it names no URL."""

_CAPABILITY_BY_INPUT: Final = {"image": "image_in", "video": "video_in"}
_TIER_PREFIX: Final = "context_over_"


@dataclass(frozen=True, slots=True)
class ModelData:
    """What a catalogue says of a model; None for what it does not say."""

    context_size: int | None = None
    capabilities: tuple[str, ...] = ()
    prices: ModelPrices | None = None


@dataclass(frozen=True, slots=True)
class ModelImport:
    """What a catalogue changes for one configured model. `data` is None for a model that it does not know.

    `has_unclear_prices` says that it has prices, but not which of them hold for the provider.
    """

    alias: str
    data: ModelData | None
    changes: ConfigChanges
    has_unclear_prices: bool = False


def plan_import(catalogue: object, models: Sequence[ConfiguredModel]) -> list[ModelImport]:
    """Return what the catalogue changes for each configured model. Raises SetupError: it is no catalogue."""
    entries = _read_catalogue(catalogue)
    return [_plan_model(entries, model) for model in models]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A model of the catalogue at a provider; `provider` and `url` are empty where the catalogue names none."""

    provider: str
    url: str
    model: str
    data: ModelData


def _plan_model(entries: Sequence[_Entry], model: ConfiguredModel) -> ModelImport:
    named = [entry for entry in entries if entry.model == model.model]
    if not named:
        return ModelImport(model.alias, None, {})
    own = _find_own_entries(named, model)
    prices = {entry.data.prices for entry in own}
    data = ModelData(
        _agreed({entry.data.context_size for entry in own or named}),
        _common_capabilities(own or named),
        _agreed(prices),
    )
    unclear = data.prices is None and any(entry.data.prices is not None for entry in named)
    return ModelImport(model.alias, data, _build_changes(model, data), unclear)


def _find_own_entries(entries: Sequence[_Entry], model: ConfiguredModel) -> Sequence[_Entry]:
    """Return the entries of the model's own provider; none where the catalogue does not tell which that is."""
    if any(not entry.provider for entry in entries):
        return entries  # the file of the user, which is about the user's providers
    url, host = model.base_url.rstrip("/"), _read_host(model.base_url)
    return (
        [entry for entry in entries if entry.url.rstrip("/") == url]
        or [entry for entry in entries if host and _read_host(entry.url) == host]
        or [entry for entry in entries if entry.provider == _PROVIDER_BY_HOST.get(host)]
        or [entry for entry in entries if entry.provider == model.provider and not entry.url]
    )


def _read_host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _agreed(values: set[Any]) -> Any:
    """Return the one value; None where there are several."""
    return next(iter(values)) if len(values) == 1 else None


def _common_capabilities(entries: Sequence[_Entry]) -> tuple[str, ...]:
    common = set(CAPABILITIES).intersection(*(entry.data.capabilities for entry in entries))
    return tuple(sorted(common))


def _build_changes(model: ConfiguredModel, data: ModelData) -> ConfigChanges:
    """Return the keys that get another value. Capabilities are added, and none is taken away."""
    changes: dict[tuple[str, ...], Any] = {}
    path = ("models", model.alias)
    if data.context_size is not None and data.context_size != model.context_size:
        changes[*path, "max_context_size"] = data.context_size
    if capabilities := {*data.capabilities} - {*model.capabilities}:
        changes[*path, "capabilities"] = tuple(sorted({*model.capabilities, *capabilities}))
    if data.prices is not None and data.prices != model.prices:
        for name in ("input", "output", "cache_read", "cache_write", "currency", "max_input"):
            value = getattr(data.prices, name)
            if value is not None or model.prices is not None:
                changes[*path, "prices", name] = value
    return changes


# --- reading ----------------------------------------------------------------------------------------------------


def _read_catalogue(catalogue: object) -> list[_Entry]:
    top = _as_object(catalogue)
    own = _as_object(top.get("models"))
    if own and "models" not in own:
        entries = [_Entry("", "", name, _read_own(_as_object(value))) for name, value in own.items()]
    else:
        entries = [entry for name, provider in top.items() for entry in _read_provider(name, _as_object(provider))]
    if not entries:
        raise SetupError(
            'The file is no catalogue of models: it needs {"models": {...}}, or providers with "models" as models.dev '
            "lists them."
        )
    return entries


def _read_provider(name: str, provider: Mapping[str, Any]) -> Iterator[_Entry]:
    url = provider.get("api")
    for model, value in _as_object(provider.get("models")).items():
        yield _Entry(name, url if isinstance(url, str) else "", model, _read_listed(_as_object(value)))


def _read_own(entry: Mapping[str, Any]) -> ModelData:
    """Read an entry in the layout of this program."""
    named = cast("list[object]", names) if isinstance(names := entry.get("capabilities"), list) else []
    return ModelData(
        _read_count(entry.get("context_size", entry.get("max_context_size"))),
        tuple(name for name in CAPABILITIES if name in named),
        _read_prices(_as_object(entry.get("prices"))),
    )


def _read_listed(entry: Mapping[str, Any]) -> ModelData:
    """Read an entry in the layout of models.dev."""
    modalities = _as_object(entry.get("modalities")).get("input")
    inputs = cast("list[object]", modalities) if isinstance(modalities, list) else []
    able = [name for kind, name in _CAPABILITY_BY_INPUT.items() if kind in inputs]
    thinks = ["thinking"] if entry.get("reasoning") is True else []
    context = _read_count(_as_object(entry.get("limit")).get("context"))
    return ModelData(context, tuple(sorted([*able, *thinks])), _read_listed_prices(_as_object(entry.get("cost"))))


def _read_listed_prices(cost: Mapping[str, Any]) -> ModelPrices | None:
    """Read prices as models.dev lists them.

    There are none for a subscription, which is listed with zeros, nor where tokens of thinking have a price of their
    own: how many of the tokens these are is not known.
    """
    if not cost.get("input") and not cost.get("output"):
        return None
    if cost.get("reasoning") not in (None, cost.get("output")) or "tiers" in cost:
        return None
    sizes = [_read_tier(name) for name in cost if name.startswith(_TIER_PREFIX)]
    if None in sizes:
        return None
    return _read_prices({**cost, "max_input": min((size for size in sizes if size), default=None), "currency": "USD"})


def _read_tier(name: str) -> int | None:
    """Return the tokens of `context_over_200k`, above which other prices hold."""
    digits = name.removeprefix(_TIER_PREFIX).removesuffix("k")
    return int(digits) * 1000 if digits.isascii() and digits.isdecimal() and int(digits) else None


def _read_prices(prices: Mapping[str, Any]) -> ModelPrices | None:
    given, taken = _read_price(prices.get("input")), _read_price(prices.get("output"))
    currency = prices.get("currency", "USD")
    if given is None or taken is None or not _is_currency(currency):
        return None
    return ModelPrices(
        given,
        taken,
        _read_price(prices.get("cache_read")),
        _read_price(prices.get("cache_write")),
        currency,
        _read_count(prices.get("max_input")),
    )


def _is_currency(value: object) -> bool:
    return isinstance(value, str) and len(value) == 3 and value.isascii() and value.isalpha() and value.isupper()


def _read_price(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < 1_000_000 else None


def _read_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12 else None


def _as_object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
