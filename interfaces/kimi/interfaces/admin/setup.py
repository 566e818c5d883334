"""`kimi setup`: the dialogue about provider, key and model (runtime spec 1.6). The use-case decides what is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from kimi.application.admin.setup import (
    CAPABILITIES,
    SetupContext,
    SetupError,
    SetupOptions,
    SetupValues,
    build_changes,
    build_key_entry,
    build_key_removal,
    choose_default_key,
    choose_listing_key,
    find_keyless_provider,
    find_overriding_variable,
    find_preset,
    find_provider_with_key,
    find_providers_with_key,
    is_api_key,
    parse_context_size,
    read_named_key,
    resolve_api_key,
    resolve_values,
    validate_capabilities,
    validate_model,
    validate_url,
)
from kimi.application.settings.flags import share_directory
from kimi.application.settings.settings import ProviderPreset
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES, PRESETS
from kimi.interfaces.admin.setup_dialogue import PlainSetupDialogue, SetupDialogue, choose
from kimi.interfaces.bootstrap.admin import build_configuration_file, list_offered_models
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line

T = TypeVar("T")

SHOWN_MODELS: Final = 30
MODELS_S: Final = 5.0
"""Seconds that a server has to list its models."""

_PRESET_NAMES: Final = frozenset(preset.name for preset in PRESETS)

NOTHING_WRITTEN: Final = "Nothing was changed."


def run_setup(
    options: SetupOptions | None = None,
    *,
    config_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    dialogue: SetupDialogue | None = None,
) -> int:
    """Set up a provider, or remove a key; return the exit status: 0 when the configuration was written, else 1.

    Without `config_file` the default file is changed. `dialogue` asks and shows; without it stdin and stdout do.
    Nothing is raised; errors are written to stderr.
    """
    setup = _SetupRun(environ or os.environ, config_file, dialogue or PlainSetupDialogue())
    try:
        setup.run(options or SetupOptions())
    except (EOFError, KeyboardInterrupt):
        write_stderr(f"\n{NOTHING_WRITTEN}\n")
        return 1
    except KimiError as error:
        write_stderr(f"{_format_error(error)}\n{NOTHING_WRITTEN}\n")
        return 1
    return 0


class _SetupRun:
    """One run of the setup, with the file that it writes and the dialogue that it asks."""

    def __init__(self, environ: Mapping[str, str], config_file: str | None, dialogue: SetupDialogue) -> None:
        self._environ = environ
        self._share = share_directory(environ)
        self._config_file = config_file
        self._configuration = build_configuration_file(self._share, config_file)
        self._dialogue = dialogue

    def run(self, options: SetupOptions) -> None:
        context = SetupContext(self._configuration.read(), self._environ, API_KEY_VARIABLES)
        if options.remove_key:
            self._remove_key(find_provider_with_key(context.known, options.provider))
        elif options.provider is None:
            self._run_dialogue(options, context)
        elif options.provider in context.known.details and options.provider not in _PRESET_NAMES:
            self._enter_key(options.provider, _require_only_key(options, context), context)
        else:
            preset = find_preset(PRESETS, options.provider)
            self._write_values(resolve_values(options, preset, context), context)

    def _run_dialogue(self, options: SetupOptions, context: SetupContext) -> None:
        keyless, with_key = find_keyless_provider(context), find_providers_with_key(context.known)
        asked: list[str] = []
        if keyless is not None:
            asked.append(f"Enter a key for '{escape_line(keyless)}', which is configured and has none")
        titles = [*asked, *(preset.title for preset in PRESETS)]
        titles += [f"Remove the stored key of '{escape_line(name)}'" for name in with_key]
        self._dialogue.say("Which provider do you want to use?")
        chosen = choose(self._dialogue, "Number", titles) - len(asked)
        if chosen >= len(PRESETS):
            self._remove_key(with_key[chosen - len(PRESETS)])
            return
        if chosen < 0 and keyless is not None:
            self._enter_key(keyless, _ask_missing_key(self._dialogue, keyless, context), context)
        else:
            self._write_values(_ask_values(self._dialogue, options, PRESETS[chosen], context), context)
        self._offer_trial()

    def _enter_key(self, provider: str, api_key: str, context: SetupContext) -> None:
        self._configuration.change(build_key_entry(provider, api_key, PRESETS, context.known))
        self._dialogue.say(f"Written to {self._configuration.path}: a key for provider '{escape_line(provider)}'.")
        self._dialogue.say("Check it with 'kimi doctor'.")

    def _write_values(self, values: SetupValues, context: SetupContext) -> None:
        changes, alias = build_changes(values, context.known)
        self._configuration.change(changes)
        name, path = values.preset.name, self._configuration.path
        self._dialogue.say(f"Written to {path}: provider '{name}', default model '{alias}'.")
        if variable := find_overriding_variable(values, context):
            self._dialogue.say(f"The variable {variable} is set: its key is used instead of the one in the file.")
        self._dialogue.say("Check it with 'kimi doctor'.")

    def _offer_trial(self) -> None:
        """Offer to try the model. The configuration is already written, whatever the outcome is."""
        with suppress(EOFError, KeyboardInterrupt):
            answer = self._dialogue.ask("Send it a short question, to see whether it works? (y/n)", "y")
            if answer.lower() in ("y", "yes"):
                from kimi.interfaces.admin.setup_trial import try_model  # start-up time

                self._dialogue.say(try_model(self._share, self._config_file, self._environ))

    def _remove_key(self, provider: str) -> None:
        self._configuration.change(build_key_removal(provider))
        self._dialogue.say(f"Removed the key of provider '{escape_line(provider)}' from {self._configuration.path}.")


def _format_error(error: KimiError) -> str:
    """Return the message of an error, with the control characters of quoted text escaped."""
    if isinstance(error, SetupError) and error.names:
        return error.template.format(*map(escape_line, error.names))
    return str(error)


# --- questions -------------------------------------------------------------------------------------------------


def _ask_values(
    dialogue: SetupDialogue, options: SetupOptions, preset: ProviderPreset, context: SetupContext
) -> SetupValues:
    """Return the values that the user enters; an empty answer takes the proposed one."""
    base_url = _ask_until_valid(dialogue, "Base URL", options.base_url or preset.base_url, validate_url)
    if options.api_key_env is not None:
        api_key = resolve_api_key(options, preset, context)
    else:
        api_key = _ask_api_key(dialogue, preset, context)
    env = {name: value for name, title in preset.variables if (value := dialogue.ask(f"{title} ({name})"))}
    _show_models(dialogue, base_url, choose_listing_key(preset, api_key, context), context.environ)
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


def _require_only_key(options: SetupOptions, context: SetupContext) -> str:
    """Return the key of the options for a provider that is configured under a name of its own. Raises SetupError."""
    more = (options.base_url, options.model, options.context_size, options.capabilities)
    if options.api_key_env is None or any(value is not None for value in more):
        template = "The provider {!r} is configured already: it takes --api-key-env and nothing else."
        raise SetupError(template, options.provider or "")
    return read_named_key(options.api_key_env, context.environ)


def _ask_missing_key(dialogue: SetupDialogue, provider: str, context: SetupContext) -> str:
    """Ask for the key of a configured provider until there is one; say where keys are made."""
    base_url = context.known.details[provider].base_url
    page = next((one.key_page for one in PRESETS if one.key_page and one.base_url == base_url.rstrip("/")), "")
    if page:
        dialogue.say(f"Keys are made at {page}")
    while not is_api_key(key := dialogue.ask_secret("API key (not shown)")) or not key:
        dialogue.say("A key is one word of printable characters.")
    return key


def _ask_api_key(dialogue: SetupDialogue, preset: ProviderPreset, context: SetupContext) -> str | None:
    variable = context.key_variables.get(preset.type)
    if context.has_stored_key(preset):
        otherwise = "keep the stored one"
    elif not preset.needs_key:
        otherwise = "use none"
    else:
        otherwise = f"take it from {variable} at each start" if variable else "write none"
    if preset.key_page:
        dialogue.say(f"Keys are made at {preset.key_page}")
    key = dialogue.ask_secret(f"API key (not shown; empty to {otherwise})")
    while key and not is_api_key(key):
        dialogue.say("A key is one word of printable characters.")
        key = dialogue.ask_secret("API key")
    return key or choose_default_key(preset, context)


def _show_models(dialogue: SetupDialogue, base_url: str, key: str | None, environ: Mapping[str, str]) -> None:
    """Show the models of the server, if there is a key to ask with and the server answers soon."""
    if key is None:
        return
    import anyio  # start-up time

    names = anyio.run(list_offered_models, base_url, key, environ, MODELS_S)
    if names:
        more = f", and {len(names) - SHOWN_MODELS} more" if len(names) > SHOWN_MODELS else ""
        dialogue.say(f"It offers: {', '.join(map(escape_line, names[:SHOWN_MODELS]))}{more}")


def _ask_until_valid(dialogue: SetupDialogue, question: str, default: str, check: Callable[[str], T]) -> T:
    """Ask until the answer passes the check, whose SetupError says what is wrong."""
    while True:
        try:
            return check(dialogue.ask(question, default))
        except SetupError as error:
            dialogue.say(_format_error(error))
