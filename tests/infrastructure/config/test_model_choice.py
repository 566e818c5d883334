"""The model of the configuration, what variables change of it, and its secrets (runtime spec 2)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kimi.domain.errors import ConfigError, UsageError
from tests.support.settings_loading import MODEL, PROVIDER, SECRET, load, one_model

# --- the model -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-43")
def test_variables_override_their_own_kind_of_provider_only() -> None:
    environ = {
        "KIMI_BASE_URL": "http://kimi",
        "KIMI_API_KEY": "kimi-key",
        "KIMI_MODEL_NAME": "kimi-k",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "777",
        "KIMI_MODEL_CAPABILITIES": "image_in, nonsense,thinking",
        "KIMI_MODEL_TEMPERATURE": "0.5",
        "KIMI_MODEL_TOP_P": "0.25",
        "KIMI_MODEL_MAX_COMPLETION_TOKENS": "99",
        "KIMI_MODEL_THINKING_KEEP": "all",
        "OPENAI_BASE_URL": "http://openai",
        "OPENAI_API_KEY": "openai-key",
    }
    kimi = load(one_model(model={"capabilities": ["video_in"]}), environ, model="m").model
    assert kimi is not None
    assert (kimi.base_url, kimi.api_key, kimi.model, kimi.max_context_size) == (
        "http://kimi",
        "kimi-key",
        "kimi-k",
        777,
    )
    assert kimi.capabilities == {"image_in", "thinking"}
    assert (kimi.temperature, kimi.top_p, kimi.max_completion_tokens, kimi.thinking_keep) == (0.5, 0.25, 99, "all")
    for type_ in ("openai_legacy", "openai_responses"):
        openai = load(one_model(provider={"type": type_}), environ).model
        assert openai is not None
        assert (openai.base_url, openai.api_key) == ("http://openai", "openai-key")
        assert (openai.model, openai.max_context_size) == ("m-1", 1000)
        assert (openai.temperature, openai.max_completion_tokens) == (None, None)
    other = load(one_model(provider={"type": "anthropic"}), environ).model
    assert other is not None
    assert (other.base_url, other.api_key, other.model) == (PROVIDER["base_url"], SECRET, "m-1")


def test_empty_variables_count_as_unset() -> None:
    names = ("KIMI_BASE_URL", "KIMI_API_KEY", "KIMI_MODEL_NAME", "KIMI_MODEL_MAX_CONTEXT_SIZE", "KIMI_MODEL_TOP_P")
    assert load(one_model(), dict.fromkeys(names, "")).model == load(one_model()).model


@pytest.mark.parametrize(
    ("environ", "cap"),
    [
        ({"KIMI_MODEL_MAX_COMPLETION_TOKENS": "0"}, 0),
        ({"KIMI_MODEL_MAX_TOKENS": "5"}, 5),
        ({"KIMI_MODEL_MAX_COMPLETION_TOKENS": "-1", "KIMI_MODEL_MAX_TOKENS": "5"}, -1),
        ({"KIMI_MODEL_MAX_COMPLETION_TOKENS": "many"}, None),
    ],
)
def test_environment_sets_the_completion_cap(environ: dict[str, str], cap: int | None) -> None:
    model = load(one_model(), environ).model
    assert model is not None
    assert model.max_completion_tokens == cap


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KIMI_MODEL_MAX_CONTEXT_SIZE", "128k"),
        ("KIMI_MODEL_MAX_CONTEXT_SIZE", "0"),
        ("KIMI_MODEL_TEMPERATURE", "warm"),
        ("KIMI_MODEL_TOP_P", "nan"),
    ],
)
def test_non_numeric_variable_is_reported_with_its_value(variable: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(one_model(), {variable: value})
    assert variable in str(caught.value)
    assert f"'{value}'" in str(caught.value)


def test_without_a_model_only_the_environment_makes_one_usable() -> None:
    nothing = load().model
    assert nothing is not None
    assert (nothing.type, nothing.max_context_size, nothing.is_usable) == ("kimi", 100_000, False)
    complete = load(None, {"KIMI_BASE_URL": "http://x", "KIMI_MODEL_NAME": "k", "KIMI_API_KEY": "a"}).model
    assert complete is not None
    assert complete.is_usable


def test_model_flag_overrides_the_default_model() -> None:
    config = one_model()
    config["models"]["n"] = {**MODEL, "model": "n-1"}
    chosen = load(config, model="n").model
    assert chosen is not None
    assert chosen.model == "n-1"


@pytest.mark.parametrize(("config", "listed"), [(one_model(), "choose one of: m"), ({}, "no models are configured")])
def test_an_unknown_model_lists_the_known_ones(config: dict[str, Any], listed: str) -> None:
    with pytest.raises(ConfigError, match="Unknown model 'nope'") as caught:
        load(config, model="nope")
    assert listed in str(caught.value)


@pytest.mark.parametrize(
    ("model", "capabilities"),
    [
        ("Kimi-K2-Thinking", {"thinking", "always_thinking"}),
        ("deepseek-REASONer", {"thinking", "always_thinking"}),
        ("kimi-for-coding", {"thinking", "image_in", "video_in"}),
        ("kimi-code", {"thinking", "image_in", "video_in"}),
        ("kimi-code-2", set[str]()),
    ],
)
def test_model_id_determines_capabilities(model: str, capabilities: set[str]) -> None:
    chosen = load(one_model(model={"model": model})).model
    assert chosen is not None
    assert chosen.capabilities == capabilities


@pytest.mark.parametrize(
    ("capabilities", "flag", "configured", "thinking"),
    [
        (["always_thinking"], False, False, True),
        (["thinking"], True, False, True),
        (["thinking"], False, True, False),
        (["thinking"], None, True, True),
        (["thinking"], None, False, False),
        ([], True, False, None),
        ([], False, True, False),
        ([], None, True, None),
        ([], None, False, None),
    ],
)
def test_thinking_is_decided_by_capability_flag_and_configuration(
    capabilities: list[str], flag: bool | None, configured: bool, thinking: bool | None
) -> None:
    config = {**one_model(model={"capabilities": capabilities}), "default_thinking": configured}
    model = load(config, thinking=flag).model
    assert model is not None
    assert model.thinking is thinking


# --- secrets ---------------------------------------------------------------------------------------------------


def test_variables_with_api_keys_are_listed_as_secret() -> None:
    environ = {"KIMI_API_KEY": "a", "OPENAI_API_KEY": "b", "MY_KEY": SECRET, "HOME": "/tmp"}
    assert load(one_model(), environ).secret_variables == {"KIMI_API_KEY", "MY_KEY"}
    openai = one_model(provider={"type": "openai_legacy"})
    assert load(openai, environ).secret_variables == {"KIMI_API_KEY", "OPENAI_API_KEY", "MY_KEY"}


@pytest.mark.spec("R-173")
def test_variables_with_any_secret_of_the_configuration_are_secret() -> None:
    config = one_model(
        provider={"env": {"A": "env-secret-1", "PLACE": "/home/me"}, "custom_headers": {"X": "header-secret-1"}}
    )
    config["services"] = {
        "moonshot_search": {"base_url": "", "api_key": "service-secret-1", "custom_headers": {"Y": "other-header-1"}}
    }
    secret = {
        "COPY": "env-secret-1",
        "HEADER": "header-secret-1",
        "SERVICE": "service-secret-1",
        "SERVICE_HEADER": "other-header-1",
        "ADDRESS": "https://me:service-secret-1@host/",
        "PLACE": "/home/me",
    }
    harmless = {"HOME": "/home/me", "PATH": "/home/me/bin", "DATA": "/home/me/data", "NAME": "service", "EMPTY": ""}
    assert load(config, {**secret, **harmless}).secret_variables == set(secret)


def test_every_secret_is_known_for_masking_and_shown_nowhere() -> None:
    config = one_model(
        provider={
            "base_url": "http://me:password-in-url@h/v1",
            "env": {"A": "env-secret", "KIMI_REPLAY": "/tape.jsonl", "GOOGLE_APPLICATION_CREDENTIALS": "/robot.json"},
            "custom_headers": {"X": "header-secret", "Authorization": "Bearer bearer-secret"},
        }
    )
    config["services"] = {"moonshot_search": {"base_url": "", "api_key": "service-secret"}}
    settings = load(config, {"KIMI_API_KEY": "variable-secret"})
    secrets = {SECRET, "password-in-url", "env-secret", "header-secret", "service-secret", "variable-secret"}
    secrets |= {"Bearer bearer-secret", "bearer-secret"}
    assert settings.secret_values == secrets
    shown = repr(settings).replace("password-in-url", "")
    assert not any(secret in shown for secret in secrets - {"password-in-url"})


@pytest.mark.parametrize(
    "spoil",
    [
        {"type": 5},
        {"api_key": ["sk-1234567890"]},
        {"custom_headers": {"X": {"y": SECRET}}},
        {"env": {"X": [SECRET]}},
        {"env": SECRET},
        {"oauth": SECRET},
    ],
)
def test_configuration_errors_contain_no_values(spoil: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        load(one_model(provider=spoil))
    error: BaseException | None = caught.value
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_the_environment_of_a_provider_is_not_exported() -> None:
    settings = load(one_model(provider={"env": {"KIMI_TEST_ONLY": "x"}}))
    assert settings.model is not None
    assert settings.model.env == {"KIMI_TEST_ONLY": "x"}
    assert "KIMI_TEST_ONLY" not in os.environ
