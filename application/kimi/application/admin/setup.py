"""Use-case setup: the changes of the configuration for a provider, a key and a model (runtime spec 1.6, 2.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from kimi.application.admin.configuration import ConfigChanges, ConfigSummary
from kimi.application.settings.settings import ProviderPreset
from kimi.domain.errors import KimiError

CAPABILITIES: Final = ("always_thinking", "image_in", "thinking", "video_in")

PLACEHOLDER_KEY: Final = "none"
"""The key for a server that needs none; some servers refuse requests without any key."""


class SetupError(KimiError):
    """The requested setup cannot be written.

    Each `{}` of the template stands for one of `names`, which come from the user or the file and may hold any text. A
    caller that shows the error on a terminal must escape them.
    """

    def __init__(self, template: str, *names: str) -> None:
        super().__init__(template.format(*names) if names else template)
        self.template = template
        self.names = names


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """The options of the command line. With a `provider` (a preset) the user is not asked anything.

    `api_key_env` names the variable with the key. `remove_key` removes the key of `provider` instead, which is then
    the name of a configured provider.
    """

    provider: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    model: str | None = None
    context_size: int | None = None
    capabilities: tuple[str, ...] | None = None
    remove_key: bool = False


@dataclass(frozen=True, slots=True)
class SetupContext:
    """The context of a setup. `key_variables` maps provider types to the variables whose keys override stored ones."""

    known: ConfigSummary
    environ: Mapping[str, str]
    key_variables: Mapping[str, str]

    def has_stored_key(self, preset: ProviderPreset) -> bool:
        """Whether the configuration holds a key of this provider."""
        return bool(self.known.providers.get(preset.name))


@dataclass(frozen=True, slots=True)
class SetupValues:
    """The values that a setup writes. With `api_key` None the stored key is kept."""

    preset: ProviderPreset
    base_url: str
    api_key: str | None
    model: str
    context_size: int
    capabilities: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


# --- values and changes ----------------------------------------------------------------------------------------


def resolve_values(options: SetupOptions, preset: ProviderPreset, context: SetupContext) -> SetupValues:
    """Return the values of the options, with those of the preset as defaults.

    Raises SetupError when a value without a default is missing, or a value cannot be used.
    """
    if not (base_url := options.base_url or preset.base_url):
        raise SetupError(f"The provider '{preset.name}' needs --base-url.")
    if not (model := options.model or preset.model):
        raise SetupError(f"The provider '{preset.name}' needs --model: the id that it knows the model by.")
    return SetupValues(
        preset,
        validate_url(base_url),
        resolve_api_key(options, preset, context),
        validate_model(model),
        options.context_size or preset.context_size,
        preset.capabilities if options.capabilities is None else validate_capabilities(options.capabilities),
        {name: value for name, _ in preset.variables if (value := context.environ.get(name))},
    )


def build_changes(values: SetupValues, known: ConfigSummary) -> tuple[ConfigChanges, str]:
    """Return the keys to write, and the name of the model: its own id, or one with its provider if that is taken."""
    name = values.preset.name
    alias = values.model
    if known.models.get(alias, name) != name:
        alias = f"{name}/{alias}"
    provider: dict[str, str | None] = {"type": values.preset.type, "base_url": values.base_url}
    if values.api_key is not None:
        provider["api_key"] = values.api_key
    return {
        ("default_model",): alias,
        **{("providers", name, key): value for key, value in provider.items()},
        **{("providers", name, "env", key): value for key, value in values.env.items()},
        **build_service_changes(values.preset, values.base_url, known),
        ("models", alias, "provider"): name,
        ("models", alias, "model"): values.model,
        ("models", alias, "max_context_size"): values.context_size,
        ("models", alias, "capabilities"): values.capabilities or None,
    }, alias


def build_service_changes(preset: ProviderPreset, base_url: str, known: ConfigSummary) -> ConfigChanges:
    """Return the services that belong to the provider at this address; one that has a key of its own stays.

    They are written without a key: they take that of the provider at each start, so that it stands once in the file.
    """
    if base_url.rstrip("/") != preset.base_url:
        return {}
    missing = [(name, url) for name, url in preset.services if not known.services.get(name)]
    return {
        ("services", name, key): value for name, url in missing for key, value in (("base_url", url), ("api_key", ""))
    }


def build_key_entry(
    provider: str, api_key: str, presets: Sequence[ProviderPreset], known: ConfigSummary
) -> ConfigChanges:
    """Return the changes that give a configured provider this key; its models stay, and one becomes the default."""
    base_url = known.details[provider].base_url
    services = (build_service_changes(preset, base_url, known) for preset in presets)
    first = next((alias for alias, name in known.models.items() if name == provider), None)
    return {
        ("providers", provider, "api_key"): api_key,
        **({("default_model",): first} if first is not None and not known.default_model else {}),
        **{keys: value for changes in services for keys, value in changes.items()},
    }


def find_keyless_provider(context: SetupContext) -> str | None:
    """Return the provider of the default model if it wants a key and has none; else None."""
    name = context.known.models.get(context.known.default_model, "")
    found = context.known.details.get(name)
    if found is None or not found.lacks_key or context.environ.get(found.key_variable):
        return None
    return name


def build_logout(known: ConfigSummary) -> ConfigChanges:
    """Return the changes that remove every stored key; providers and services stay configured."""
    return dict.fromkeys(known.stored_keys, "")


def build_key_removal(provider: str) -> ConfigChanges:
    """Return the change that removes the key of a provider, which stays configured."""
    return {("providers", provider, "api_key"): ""}


def find_preset(presets: Sequence[ProviderPreset], name: str) -> ProviderPreset:
    """Return the preset with this name. Raises SetupError when there is none."""
    for preset in presets:
        if preset.name == name:
            return preset
    known = ", ".join(preset.name for preset in presets)
    raise SetupError(f"There is no provider {{!r}} to set up; choose one of: {known}.", name)


# --- keys ------------------------------------------------------------------------------------------------------


def resolve_api_key(options: SetupOptions, preset: ProviderPreset, context: SetupContext) -> str | None:
    """Return the key to write; None keeps the stored one, and "" is for a variable that is read at each start.

    Raises SetupError when the named variable holds no key, or when the provider needs a key and there is none.
    """
    variable = context.key_variables.get(preset.type)
    named = options.api_key_env
    if named is not None:
        return "" if named == variable else read_named_key(named, context.environ)
    has_key = context.has_stored_key(preset) or (variable and context.environ.get(variable))
    if preset.needs_key and not has_key:
        raise SetupError(f"The provider '{preset.name}' needs a key: name the variable that holds it, --api-key-env.")
    return choose_default_key(preset, context)


def choose_default_key(preset: ProviderPreset, context: SetupContext) -> str | None:
    """Return the key to write when the user entered none; None keeps the stored one."""
    if context.has_stored_key(preset):
        return None
    return "" if preset.needs_key or preset.variables else PLACEHOLDER_KEY


def choose_listing_key(preset: ProviderPreset, api_key: str | None, context: SetupContext) -> str | None:
    """Return the key for listing the provider's models; None when the provider has no standard way to list them."""
    variable = context.key_variables.get(preset.type)
    return None if variable is None else api_key or context.environ.get(variable) or ""


def find_overriding_variable(values: SetupValues, context: SetupContext) -> str | None:
    """Return the variable whose key is used instead of the written one; None when there is none."""
    variable = context.key_variables.get(values.preset.type)
    return variable if variable and values.api_key and context.environ.get(variable) else None


def find_providers_with_key(known: ConfigSummary) -> list[str]:
    """Return the names of the configured providers that have a key."""
    return [name for name, has_key in known.providers.items() if has_key]


def find_provider_with_key(known: ConfigSummary, named: str | None) -> str:
    """Return the provider whose key is to be removed: `named`, else the only one with a key.

    Raises SetupError when the provider is not known, or when several have a key and none is named.
    """
    with_key = find_providers_with_key(known)
    if named is not None and named in known.providers:
        return named
    if named is None and len(with_key) == 1:
        return with_key[0]
    shown = ", ".join("{}" for _ in with_key) or "none"
    raise SetupError(f"Name the provider with --provider; these have a key: {shown}.", *with_key)


def is_api_key(text: str) -> bool:
    """Whether `text` can be sent as a key: one word of printable ASCII."""
    return text.isascii() and text.isprintable() and " " not in text


def read_named_key(variable: str, environ: Mapping[str, str]) -> str:
    """Return the key in a variable. Raises SetupError when it holds none."""
    key = (environ.get(variable) or "").strip()
    if not key:
        raise SetupError("The environment variable {} is not set.", variable)
    if not is_api_key(key):
        raise SetupError("The environment variable {} holds no key: a key is one word.", variable)
    return key


# --- validation ------------------------------------------------------------------------------------------------


def validate_url(text: str) -> str:
    """Return `text` as the URL of an endpoint. Raises SetupError."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise SetupError("The base URL must look like https://host/path.")
    return text


def validate_model(text: str) -> str:
    """Return the id of a model. Raises SetupError for quotation marks, which clients cannot read in the file."""
    if not text or not text.isprintable() or '"' in text or "\\" in text:
        raise SetupError("The id of the model must not be empty, nor hold quotation marks or backslashes.")
    return text


def parse_context_size(text: str) -> int:
    """Return a number of tokens; `128k` is understood. Raises SetupError."""
    number = text.lower().replace("_", "").replace(",", "")
    digits = number.removesuffix("k")
    if not (digits.isascii() and digits.isdecimal() and int(digits[:12])):
        raise SetupError("The context size must be a whole number of tokens above 0, like 131072 or 128k.")
    return int(digits[:12]) * (1 if digits == number else 1024)


def validate_capabilities(names: Iterable[str]) -> tuple[str, ...]:
    """Return known capabilities in alphabetical order; the name `none` means no capabilities. Raises SetupError."""
    found = sorted({name.lower() for name in names} - {"none"})
    if unknown := [name for name in found if name not in CAPABILITIES]:
        raise SetupError(f"There is no capability {{!r}}; there are {', '.join(CAPABILITIES)}.", unknown[0])
    return tuple(found)
