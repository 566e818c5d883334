"""Chooses the model of a process: flag, configuration, then the environment on top (runtime spec 2.4, 2.5)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.domain.turn import ModelPrices
from kimi.infrastructure.config.schema import CAPABILITIES, Configuration, ModelConfig, ProviderConfig
from kimi.infrastructure.models.provider_types import ENVIRONMENT_TYPE, PROVIDER_TYPES, find_key_page

_log = logging.getLogger("kimi.settings")

_ENVIRONMENT_PROVIDER = ProviderConfig(type=ENVIRONMENT_TYPE, base_url="", api_key="")
_ENVIRONMENT_MODEL = ModelConfig(provider="kimi", model="", max_context_size=100_000)
"""The defaults if the configuration chooses no model; only environment variables can complete them."""


def choose_model(configuration: Configuration, flags: Flags, environ: Mapping[str, str]) -> ModelSettings:
    """Return the chosen model with its provider, everything resolved.

    It may be unusable (`is_usable`); the first prompt then reports that.

    Raises:
        ConfigError: `--model` names none of the configured models, or a numeric variable holds no number.
    """
    name = _choose_alias(configuration, flags, environ)
    model = configuration.models[name] if name else _ENVIRONMENT_MODEL
    provider = configuration.providers[model.provider] if name else _ENVIRONMENT_PROVIDER
    settings = _make_model_settings(provider, model, name)
    settings = settings.model_copy(update=_read_overrides(provider.type, environ))
    capabilities = settings.capabilities | derive_capabilities(settings.model)
    thinking = _resolve_thinking(capabilities, flags.thinking, _wants_thinking(configuration, settings))
    update = {"capabilities": capabilities, "thinking": thinking, "key_page": find_key_page(settings.base_url)}
    return settings.model_copy(update=update)


def resolve_named_models(
    configuration: Configuration, flags: Flags, environ: Mapping[str, str]
) -> dict[str, ModelSettings]:
    """Return every configured model by its alias.

    Of the environment only URL and key apply here: the rest of it describes the one model that the process was started
    with.
    """
    return {
        alias: _complete_settings(
            _make_model_settings(configuration.providers[model.provider], model, alias), configuration, flags, environ
        )
        for alias, model in configuration.models.items()
    }


def _complete_settings(
    settings: ModelSettings, configuration: Configuration, flags: Flags, environ: Mapping[str, str]
) -> ModelSettings:
    capabilities = settings.capabilities | derive_capabilities(settings.model)
    thinking = _resolve_thinking(capabilities, flags.thinking, _wants_thinking(configuration, settings))
    update = {**_read_url_and_key(settings.type, environ), "capabilities": capabilities, "thinking": thinking}
    completed = settings.model_copy(update=update)
    return completed.model_copy(update={"key_page": find_key_page(completed.base_url)})


def describe_provider(name: str, provider: ProviderConfig, environ: Mapping[str, str]) -> ModelSettings:
    """Return a provider with what these variables replace, in the settings of a model without a name."""
    settings = _make_model_settings(provider, ModelConfig(provider=name, model="", max_context_size=1), "")
    completed = settings.model_copy(update=_read_url_and_key(provider.type, environ))
    return completed.model_copy(update={"key_page": find_key_page(completed.base_url)})


def find_key_for(url: str, configuration: Configuration, environ: Mapping[str, str]) -> str:
    """Return the key of the first provider at the same scheme, host and port as `url`; empty when none has one."""
    origin = url.split("/")[:3]
    for provider in (*configuration.providers.values(), _ENVIRONMENT_PROVIDER):
        stated = {"base_url": provider.base_url, "api_key": provider.api_key}
        known = {**stated, **_read_url_and_key(provider.type, environ)}
        if known["api_key"] and str(known["base_url"]).split("/")[:3] == origin:
            return str(known["api_key"])
    return ""


def derive_capabilities(model: str) -> frozenset[str]:
    """Return the capabilities that the id of a model implies."""
    lowered = model.lower()
    found: set[str] = set()
    if "thinking" in lowered or "reason" in lowered:
        found |= {"thinking", "always_thinking"}
    if model in ("kimi-for-coding", "kimi-code"):
        found |= {"thinking", "image_in", "video_in"}
    return frozenset(found)


def _choose_alias(configuration: Configuration, flags: Flags, environ: Mapping[str, str]) -> str:
    """Return a key of `models`, or "" for the model of the environment."""
    if flags.model is None or flags.model in configuration.models:
        return configuration.default_model if flags.model is None else flags.model
    if not configuration.models and environ.get("KIMI_BASE_URL") and environ.get("KIMI_MODEL_NAME"):
        _log.warning("--model %s is overridden by KIMI_MODEL_NAME", flags.model)
        return ""
    known = ", ".join(sorted(configuration.models))
    advice = f"choose one of: {known}" if known else "no models are configured, add one under [models.NAME]"
    raise ConfigError(f"Unknown model '{flags.model}' for --model; {advice}.")


def _make_model_settings(provider: ProviderConfig, model: ModelConfig, alias: str) -> ModelSettings:
    return ModelSettings(
        alias=alias,
        provider_name=model.provider,
        type=provider.type,
        model=model.model,
        base_url=provider.base_url,
        api_key=provider.api_key,
        max_context_size=model.max_context_size,
        capabilities=frozenset[str](model.capabilities),
        custom_headers=provider.custom_headers,
        env=provider.env,
        max_completion_tokens=model.max_output_size,
        thinking_effort=model.thinking_effort,
        prices=make_prices(model),
        effort_levels=PROVIDER_TYPES[provider.type].effort_levels,
        reasoning_key=provider.reasoning_key,
        extra_body=provider.extra_body,
        omit_fields=provider.omit_fields,
        oauth=provider.oauth is not None,
        key_variable=PROVIDER_TYPES[provider.type].key_variable or "",
        has_machine_credentials=PROVIDER_TYPES[provider.type].has_machine_credentials,
    )


def make_prices(model: ModelConfig) -> ModelPrices | None:
    """Return what the model costs, if the configuration says it."""
    return ModelPrices(**model.prices.model_dump()) if model.prices is not None else None


def _wants_thinking(configuration: Configuration, settings: ModelSettings) -> bool:
    """Return whether the configuration wants this model to think; who says how much says that it does."""
    return configuration.default_thinking or settings.thinking_effort is not None


def _resolve_thinking(capabilities: frozenset[str], flag: bool | None, configured: bool) -> bool | None:
    """Decide whether thinking is on, off (False) or unspecified (None).

    It is on if the model always thinks, or if it can and is asked to. It is off only for a model that can think, or by
    the flag.
    """
    if "always_thinking" in capabilities:
        return True
    wanted = configured if flag is None else flag
    if "thinking" in capabilities:
        return wanted
    return False if flag is False else None


# --- the environment -------------------------------------------------------------------------------------------


def _read_overrides(provider_type: str, environ: Mapping[str, str]) -> dict[str, object]:
    """The fields that variables replace; an empty variable counts as unset."""
    if PROVIDER_TYPES[provider_type].has_model_variables:
        return _drop_unset(
            {
                **_read_url_and_key(provider_type, environ),
                "model": environ.get("KIMI_MODEL_NAME") or None,
                "max_context_size": _read_whole_number(environ, "KIMI_MODEL_MAX_CONTEXT_SIZE"),
                "capabilities": _read_capabilities(environ),
                "temperature": _read_number(environ, "KIMI_MODEL_TEMPERATURE"),
                "top_p": _read_number(environ, "KIMI_MODEL_TOP_P"),
                "max_completion_tokens": _read_completion_limit(environ),
                "thinking_keep": environ.get("KIMI_MODEL_THINKING_KEEP") or None,
            }
        )
    return _read_url_and_key(provider_type, environ)


def _read_url_and_key(provider_type: str, environ: Mapping[str, str]) -> dict[str, object]:
    """URL and key."""
    row = PROVIDER_TYPES[provider_type]
    names = {"base_url": row.url_variable, "api_key": row.key_variable}
    return _drop_unset({field: environ.get(name) or None for field, name in names.items() if name is not None})


def _drop_unset(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _read_whole_number(environ: Mapping[str, str], variable: str) -> int | None:
    text = environ.get(variable)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"The environment variable {variable} must be a whole number above 0, but it is '{text}'.")
    return number


def _read_number(environ: Mapping[str, str], variable: str) -> float | None:
    text = environ.get(variable)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"The environment variable {variable} must be a number, but it is '{text}'.")
    return number


def _read_capabilities(environ: Mapping[str, str]) -> frozenset[str] | None:
    text = environ.get("KIMI_MODEL_CAPABILITIES")
    if not text:
        return None
    return frozenset(name.strip().lower() for name in text.split(",")) & CAPABILITIES


def _read_completion_limit(environ: Mapping[str, str]) -> int | None:
    """Return the first of the two variables that holds a whole number; others are ignored, as in the reference."""
    for variable in ("KIMI_MODEL_MAX_COMPLETION_TOKENS", "KIMI_MODEL_MAX_TOKENS"):
        text = environ.get(variable)
        if not text:
            continue
        try:
            return int(text)
        except ValueError:
            _log.warning("%s is not a whole number, ignored", variable)
    return None
