"""`kimi setup`: provider, key and model into the configuration, with questions or without (runtime spec 1.6, 2.7)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import urlsplit

from kimi.application.settings.flags import share_directory
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.provider_presets import (
    API_KEY_VARIABLES,
    PLACEHOLDER_KEY,
    PRESETS,
    ProviderPreset,
    find_preset,
)
from kimi.interfaces.admin.setup_dialogue import PlainSetupDialogue, SetupDialogue, choose
from kimi.interfaces.bootstrap.config_file import ConfigChanges, ConfigSummary, change_configuration, read_configuration
from kimi.interfaces.process.startup_errors import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line

T = TypeVar("T")

CAPABILITIES: Final = ("always_thinking", "image_in", "thinking", "video_in")
SHOWN_MODELS: Final = 30
NOTHING_WRITTEN: Final = "Nothing was changed."


class SetupError(KimiError):
    """What was asked for cannot be written."""


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """What is decided before the first question. With a `provider` (a preset) nothing is asked.

    `api_key_env` names the variable with the key. `remove_key` takes away the key of the provider instead, which is
    then the name of one in the configuration.
    """

    provider: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    model: str | None = None
    context_size: int | None = None
    capabilities: tuple[str, ...] | None = None
    remove_key: bool = False


@dataclass(frozen=True, slots=True)
class SetupValues:
    """Everything that is written. `api_key` is None to keep the one that is there."""

    preset: ProviderPreset
    base_url: str
    api_key: str | None
    model: str
    context_size: int
    capabilities: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def run_setup(
    options: SetupOptions | None = None,
    *,
    config_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    dialogue: SetupDialogue | None = None,
) -> int:
    """Set up a provider, or remove a key; the result is the exit status: 0 when the configuration was written, else 1.

    Without `config_file` the default file is changed. `dialogue` asks and shows; without it stdin and stdout do.
    Nothing is raised; what went wrong is said on stderr.
    """
    setup = _SetupRun(environ or os.environ, config_file, dialogue or PlainSetupDialogue())
    try:
        setup.run(options or SetupOptions())
    except (EOFError, KeyboardInterrupt):
        write_stderr(f"\n{NOTHING_WRITTEN}\n")
        return 1
    except KimiError as error:
        write_stderr(f"{error}\n{NOTHING_WRITTEN}\n")
        return 1
    return 0


class _SetupRun:
    """One run: where it writes, who answers."""

    def __init__(self, environ: Mapping[str, str], config_file: str | None, dialogue: SetupDialogue) -> None:
        self._environ = environ
        self._share = share_directory(environ)
        self._file = config_file
        self._dialogue = dialogue

    def run(self, options: SetupOptions) -> None:
        known = read_configuration(self._share, self._file)
        if options.remove_key:
            self._remove_key(_find_provider_with_key(known, options.provider))
        elif options.provider is not None:
            self._write_values(self._resolve_values(options, _require_preset(options.provider), known), known)
        else:
            self._run_dialogue(options, known)

    def _run_dialogue(self, options: SetupOptions, known: ConfigSummary) -> None:
        with_key = [name for name, has_key in known.providers.items() if has_key]
        titles = [preset.title for preset in PRESETS]
        titles += [f"Remove the stored key of '{escape_line(name)}'" for name in with_key]
        self._dialogue.say("Which provider do you want to use?")
        chosen = choose(self._dialogue, "Number", titles)
        if chosen >= len(PRESETS):
            self._remove_key(with_key[chosen - len(PRESETS)])
        else:
            self._write_values(_ask_values(self._dialogue, options, PRESETS[chosen], known, self._environ), known)
            self._offer_trial()

    def _resolve_values(self, options: SetupOptions, preset: ProviderPreset, known: ConfigSummary) -> SetupValues:
        """What the command line says, and the preset where it says nothing."""
        if not (base_url := options.base_url or preset.base_url):
            raise SetupError(f"The provider '{preset.name}' needs --base-url.")
        if not (model := options.model or preset.model):
            raise SetupError(f"The provider '{preset.name}' needs --model: the id that it knows the model by.")
        return SetupValues(
            preset,
            validate_url(base_url),
            _resolve_api_key(options, preset, known, self._environ),
            validate_model(model),
            options.context_size or preset.context_size,
            preset.capabilities if options.capabilities is None else validate_capabilities(options.capabilities),
            {name: value for name, _ in preset.variables if (value := self._environ.get(name))},
        )

    def _write_values(self, values: SetupValues, known: ConfigSummary) -> None:
        changes, alias = build_changes(values, known)
        path = change_configuration(self._share, changes, self._file)
        self._dialogue.say(f"Written to {path}: provider '{values.preset.name}', default model '{alias}'.")
        variable = API_KEY_VARIABLES.get(values.preset.type)
        if variable and values.api_key and self._environ.get(variable):
            self._dialogue.say(f"The variable {variable} is set: its key is used instead of the one in the file.")
        self._dialogue.say("Check it with 'kimi doctor'.")

    def _offer_trial(self) -> None:
        """Let the person see at once whether it works; what is written is written."""
        with suppress(EOFError, KeyboardInterrupt):
            answer = self._dialogue.ask("Send it a short question, to see whether it works? (y/n)", "y")
            if answer.lower() in ("y", "yes"):
                from kimi.interfaces.admin.setup_network import try_model  # asks the network

                self._dialogue.say(try_model(self._share, self._file, self._environ))

    def _remove_key(self, provider: str) -> None:
        path = change_configuration(self._share, {("providers", provider, "api_key"): ""}, self._file)
        self._dialogue.say(f"Removed the key of provider '{escape_line(provider)}' from {path}.")


# --- questions -------------------------------------------------------------------------------------------------


def _ask_values(
    dialogue: SetupDialogue,
    options: SetupOptions,
    preset: ProviderPreset,
    known: ConfigSummary,
    environ: Mapping[str, str],
) -> SetupValues:
    """What the person says; an empty answer takes what is proposed."""
    base_url = _ask_until_valid(dialogue, "Base URL", options.base_url or preset.base_url, validate_url)
    named = options.api_key_env is not None
    api_key = _resolve_api_key(options, preset, known, environ) if named else _ask_api_key(dialogue, preset, known)
    env = {name: value for name, title in preset.variables if (value := dialogue.ask(f"{title} ({name})"))}
    _show_models(dialogue, preset, base_url, api_key, environ)
    model = _ask_until_valid(dialogue, "Model, as the provider names it", options.model or preset.model, validate_model)
    size = _ask_until_valid(
        dialogue, "Context size in tokens", str(options.context_size or preset.context_size), parse_context_size
    )
    proposed = ", ".join(preset.capabilities if options.capabilities is None else options.capabilities) or "none"
    question = f"Capabilities, of {', '.join(CAPABILITIES)}, or none"
    names = _ask_until_valid(
        dialogue, question, proposed, lambda text: validate_capabilities(text.replace(",", " ").split())
    )
    return SetupValues(preset, base_url, api_key, model, size, names, env)


def _ask_api_key(dialogue: SetupDialogue, preset: ProviderPreset, known: ConfigSummary) -> str | None:
    variable = API_KEY_VARIABLES.get(preset.type)
    if known.providers.get(preset.name):
        otherwise = "keep the stored one"
    elif not preset.needs_key:
        otherwise = "use none"
    else:
        otherwise = f"take it from {variable} at each start" if variable else "write none"
    key = dialogue.ask_secret(f"API key (not shown; empty to {otherwise})")
    while key and not _is_api_key(key):
        dialogue.say("A key is one word of printable characters.")
        key = dialogue.ask_secret("API key")
    return key or _default_api_key(preset, known)


def _show_models(
    dialogue: SetupDialogue, preset: ProviderPreset, base_url: str, api_key: str | None, environ: Mapping[str, str]
) -> None:
    """What the server offers, where there is a common way to ask for it and it answers soon."""
    if preset.type not in API_KEY_VARIABLES:
        return
    from kimi.interfaces.admin.setup_network import list_offered_models  # asks the network

    names = list_offered_models(base_url, api_key or environ.get(API_KEY_VARIABLES[preset.type]) or "", environ)
    if names:
        more = f", and {len(names) - SHOWN_MODELS} more" if len(names) > SHOWN_MODELS else ""
        dialogue.say(f"It offers: {', '.join(map(escape_line, names[:SHOWN_MODELS]))}{more}")


def _ask_until_valid(dialogue: SetupDialogue, question: str, default: str, check: Callable[[str], T]) -> T:
    """Ask until the answer passes the check, whose SetupRefused says what is wrong."""
    while True:
        try:
            return check(dialogue.ask(question, default))
        except SetupError as error:
            dialogue.say(str(error))


# --- what can be written ---------------------------------------------------------------------------------------


def build_changes(values: SetupValues, known: ConfigSummary) -> tuple[ConfigChanges, str]:
    """The keys to write, and the name that the model gets: its own, or one with its provider if that is taken."""
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
        ("models", alias, "provider"): name,
        ("models", alias, "model"): values.model,
        ("models", alias, "max_context_size"): values.context_size,
        ("models", alias, "capabilities"): values.capabilities or None,
    }, alias


def validate_url(text: str) -> str:
    """An address that requests can be sent to."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise SetupError("The base URL must look like https://host/path.")
    return text


def validate_model(text: str) -> str:
    """The id of a model; clients that look for it in the file cannot read quotation marks."""
    if not text or not text.isprintable() or '"' in text or "\\" in text:
        raise SetupError("The id of the model must not be empty, nor hold quotation marks or backslashes.")
    return text


def parse_context_size(text: str) -> int:
    """A number of tokens; `128k` is understood."""
    number = text.lower().replace("_", "").replace(",", "")
    digits = number.removesuffix("k")
    if not (digits.isascii() and digits.isdecimal() and int(digits[:12])):
        raise SetupError("The context size must be a whole number of tokens above 0, like 131072 or 128k.")
    return int(digits[:12]) * (1 if digits == number else 1024)


def validate_capabilities(names: Iterable[str]) -> tuple[str, ...]:
    """Known capabilities in alphabetical order; `none` stands for none."""
    found = sorted({name.lower() for name in names} - {"none"})
    if unknown := [name for name in found if name not in CAPABILITIES]:
        raise SetupError(f"There is no capability {escape_line(unknown[0])!r}; there are {', '.join(CAPABILITIES)}.")
    return tuple(found)


def _require_preset(name: str) -> ProviderPreset:
    preset = find_preset(name)
    if preset is None:
        known = ", ".join(preset.name for preset in PRESETS)
        raise SetupError(f"There is no provider {escape_line(name)!r} to set up; choose one of: {known}.")
    return preset


def _resolve_api_key(
    options: SetupOptions, preset: ProviderPreset, known: ConfigSummary, environ: Mapping[str, str]
) -> str | None:
    """The key to write, None to keep the one that is there. It is empty where a variable is read at each start."""
    variable = API_KEY_VARIABLES.get(preset.type)
    named = options.api_key_env
    if named is not None:
        return "" if named == variable else _read_api_key(named, environ)
    if preset.needs_key and not known.providers.get(preset.name) and not (variable and environ.get(variable)):
        raise SetupError(f"The provider '{preset.name}' needs a key: name the variable that holds it, --api-key-env.")
    return _default_api_key(preset, known)


def _read_api_key(variable: str, environ: Mapping[str, str]) -> str:
    key = (environ.get(variable) or "").strip()
    if not key:
        raise SetupError(f"The environment variable {escape_line(variable)} is not set.")
    if not _is_api_key(key):
        raise SetupError(f"The environment variable {escape_line(variable)} holds no key: a key is one word.")
    return key


def _default_api_key(preset: ProviderPreset, known: ConfigSummary) -> str | None:
    """What is written when no key was given."""
    if known.providers.get(preset.name):
        return None
    return "" if preset.needs_key or preset.variables else PLACEHOLDER_KEY


def _is_api_key(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _find_provider_with_key(known: ConfigSummary, named: str | None) -> str:
    with_key = [name for name, has_key in known.providers.items() if has_key]
    if named is not None and named in known.providers:
        return named
    if named is None and len(with_key) == 1:
        return with_key[0]
    shown = ", ".join(map(escape_line, with_key))
    raise SetupError(f"Name the provider with --provider; these have a key: {shown or 'none'}.")
