"""What `kimi setup` writes, and what it refuses, without a file or a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kimi.application.admin.configuration import ConfigSummary
from kimi.application.admin.setup import (
    SetupContext,
    SetupError,
    SetupOptions,
    SetupValues,
    build_changes,
    build_key_removal,
    choose_default_key,
    choose_listing_key,
    find_overriding_variable,
    find_preset,
    find_provider_with_key,
    is_api_key,
    parse_context_size,
    resolve_api_key,
    resolve_values,
    validate_capabilities,
    validate_model,
    validate_url,
)
from kimi.application.settings.settings import ProviderPreset

CLOUD = ProviderPreset("cloud", "Cloud", "openai", "https://cloud.test/v1", model="m", capabilities=("thinking",))
LOCAL = ProviderPreset("local", "Local", "openai", "http://127.0.0.1/v1", needs_key=False)
PROJECT = ProviderPreset(
    "project", "Project", "other", "https://p.test", False, "m", variables=(("PROJECT", "A project"),)
)

EMPTY = ConfigSummary({}, {})


def context(known: ConfigSummary = EMPTY, **environ: str) -> SetupContext:
    return SetupContext(known, environ, {"openai": "OPENAI_KEY"})


def values(preset: ProviderPreset = LOCAL, api_key: str | None = "sk", **env: str) -> SetupValues:
    return SetupValues(preset, "http://x", api_key, "m", 5, (), env)


# --- what is written -------------------------------------------------------------------------------------------


def test_options_come_before_the_preset() -> None:
    options = SetupOptions("cloud", "http://x", "KEY", "n", 7, ("image_in",))
    assert resolve_values(options, CLOUD, context(KEY="sk")) == SetupValues(
        CLOUD, "http://x", "sk", "n", 7, ("image_in",)
    )


def test_preset_is_taken_where_options_say_nothing() -> None:
    found = resolve_values(SetupOptions("cloud", api_key_env="KEY"), CLOUD, context(KEY="sk"))
    assert (found.base_url, found.model, found.context_size, found.capabilities) == (
        "https://cloud.test/v1",
        "m",
        131_072,
        ("thinking",),
    )


def test_variables_of_the_provider_are_copied_when_they_are_set() -> None:
    assert resolve_values(SetupOptions(), PROJECT, context(PROJECT="mine")).env == {"PROJECT": "mine"}
    assert resolve_values(SetupOptions(), PROJECT, context()).env == {}


def test_missing_values_without_a_default_are_named() -> None:
    with pytest.raises(SetupError, match="The provider 'local' needs --model"):
        resolve_values(SetupOptions(), LOCAL, context())
    with pytest.raises(SetupError, match=r"The provider 'own' needs --base-url."):
        resolve_values(SetupOptions(model="m"), ProviderPreset("own", "Own", "openai"), context())


def test_changes_keep_a_key_that_is_not_given() -> None:
    changes, _ = build_changes(values(api_key=None), EMPTY)
    assert ("providers", "local", "api_key") not in changes


def test_changes_configure_provider_model_and_default() -> None:
    changes, alias = build_changes(values(REGION="eu"), EMPTY)
    assert alias == "m"
    assert changes == {
        ("default_model",): "m",
        ("providers", "local", "type"): "openai",
        ("providers", "local", "base_url"): "http://x",
        ("providers", "local", "api_key"): "sk",
        ("providers", "local", "env", "REGION"): "eu",
        ("models", "m", "provider"): "local",
        ("models", "m", "model"): "m",
        ("models", "m", "max_context_size"): 5,
        ("models", "m", "capabilities"): None,
    }


@pytest.mark.parametrize(
    ("models", "alias"), [({"m": "local"}, "m"), ({"m": "cloud"}, "local/m"), ({"n": "cloud"}, "m")]
)
def test_name_of_a_model_is_prefixed_when_another_provider_has_it(models: Mapping[str, str], alias: str) -> None:
    assert build_changes(values(), ConfigSummary({}, models))[1] == alias


def test_removed_key_leaves_the_provider() -> None:
    assert build_key_removal("a.b") == {("providers", "a.b", "api_key"): ""}


# --- keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "stored", "key"), [(CLOUD, False, ""), (LOCAL, False, "none"), (PROJECT, False, ""), (CLOUD, True, None)]
)
def test_default_key_depends_on_what_the_provider_needs(preset: ProviderPreset, stored: bool, key: str | None) -> None:
    assert choose_default_key(preset, context(ConfigSummary({preset.name: stored}, {}))) == key


def test_variable_that_is_read_at_each_start_is_not_copied() -> None:
    options = SetupOptions(api_key_env="OPENAI_KEY")
    assert resolve_api_key(options, CLOUD, context(OPENAI_KEY="sk")) == ""
    assert resolve_api_key(options, CLOUD, context()) == ""
    assert resolve_api_key(options, PROJECT, context(OPENAI_KEY=" sk\n")) == "sk"


def test_needed_key_is_stored_or_in_the_environment() -> None:
    assert resolve_api_key(SetupOptions(), CLOUD, context(OPENAI_KEY="sk")) == ""
    assert resolve_api_key(SetupOptions(), CLOUD, context(ConfigSummary({"cloud": True}, {}))) is None
    with pytest.raises(SetupError, match="The provider 'cloud' needs a key"):
        resolve_api_key(SetupOptions(), CLOUD, context(ConfigSummary({"cloud": False}, {})))


@pytest.mark.parametrize(("text", "valid"), [("sk-1", True), ("two words", False), ("clé", False), ("a\tb", False)])
def test_key_is_one_printable_word(text: str, valid: bool) -> None:
    assert is_api_key(text) is valid


def test_models_are_listed_only_where_there_is_a_common_way() -> None:
    assert choose_listing_key(PROJECT, "sk", context()) is None
    assert choose_listing_key(CLOUD, "sk", context(OPENAI_KEY="other")) == "sk"
    assert choose_listing_key(CLOUD, None, context(OPENAI_KEY="other")) == "other"
    assert choose_listing_key(LOCAL, "", context()) == ""


def test_variable_that_overrides_the_written_key_is_found() -> None:
    assert find_overriding_variable(values(), context(OPENAI_KEY="other")) == "OPENAI_KEY"
    assert find_overriding_variable(values(), context()) is None
    assert find_overriding_variable(values(api_key=""), context(OPENAI_KEY="other")) is None
    assert find_overriding_variable(values(PROJECT), context(OPENAI_KEY="other")) is None


def test_only_provider_with_a_key_need_not_be_named() -> None:
    one = ConfigSummary({"a": True, "b": False}, {})
    assert find_provider_with_key(one, None) == "a"
    assert find_provider_with_key(one, "b") == "b"
    for known, shown in ((EMPTY, "none"), (ConfigSummary({"a": True, "b": True}, {}), "a, b")):
        with pytest.raises(SetupError, match=f"Name the provider with --provider; these have a key: {shown}."):
            find_provider_with_key(known, None)


# --- values ----------------------------------------------------------------------------------------------------


def validate_capability(name: str) -> object:
    return validate_capabilities([name])


@pytest.mark.parametrize(
    ("check", "text"),
    [
        *(
            (validate_url, text)
            for text in ("ftp://x", "http://[", "http://", "localhost:1", "http://a b", "http://x:0")
        ),
        *((validate_model, text) for text in ("", 'a"b', "a\\b", "a\nb")),
        *((parse_context_size, text) for text in ("", "0", "k", "-1", "lots", "1.5k", "٣")),
        *((validate_capability, text) for text in ("sings", "")),
    ],
)
def test_unusable_value_is_refused(check: Callable[[str], object], text: str) -> None:
    with pytest.raises(SetupError):
        check(text)


@pytest.mark.parametrize(
    ("text", "size"), [("131_072", 131_072), ("128k", 131_072), ("128K", 131_072), ("1,000", 1000)]
)
def test_context_size_is_a_number_of_tokens(text: str, size: int) -> None:
    assert parse_context_size(text) == size


def test_capabilities_are_sorted_and_none_is_none() -> None:
    assert validate_capabilities(["Thinking", "image_in", "thinking"]) == ("image_in", "thinking")
    assert validate_capabilities(["none"]) == ()


def test_error_keeps_apart_what_the_user_wrote() -> None:
    with pytest.raises(SetupError) as caught:
        find_preset((CLOUD, LOCAL), "{x}\x1b")
    assert str(caught.value) == "There is no provider '{x}\\x1b' to set up; choose one of: cloud, local."
    assert caught.value.names == ("{x}\x1b",)
