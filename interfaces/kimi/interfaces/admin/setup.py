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
from kimi.interfaces.admin.provider_presets import NO_KEY, PRESETS, RUN_TIME_KEYS, Preset, preset_named
from kimi.interfaces.admin.setup_dialogue import Dialogue, PlainDialogue, choose
from kimi.interfaces.bootstrap.config_file import Changes, Configured, change_configuration, read_configuration
from kimi.interfaces.process.plain_text import plain_line
from kimi.interfaces.process.startup_errors import write_stderr

T = TypeVar("T")

CAPABILITIES: Final = ("always_thinking", "image_in", "thinking", "video_in")
SHOWN_MODELS: Final = 30
NOTHING_WRITTEN: Final = "Nothing was changed."


class SetupRefused(KimiError):
    """What was asked for cannot be written."""


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Decided:
    """Everything that is written. `api_key` is None to keep the one that is there."""

    preset: Preset
    base_url: str
    api_key: str | None
    model: str
    context_size: int
    capabilities: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def run_setup(
    wanted: Wanted | None = None,
    *,
    config_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    dialogue: Dialogue | None = None,
) -> int:
    """Set up a provider, or remove a key; the result is the exit status: 0 when the configuration was written, else 1.

    Without `config_file` the default file is changed. `dialogue` asks and shows; without it stdin and stdout do.
    Nothing is raised; what went wrong is said on stderr.
    """
    setup = _Setup(environ or os.environ, config_file, dialogue or PlainDialogue())
    try:
        setup.run(wanted or Wanted())
    except (EOFError, KeyboardInterrupt):
        write_stderr(f"\n{NOTHING_WRITTEN}\n")
        return 1
    except KimiError as error:
        write_stderr(f"{error}\n{NOTHING_WRITTEN}\n")
        return 1
    return 0


class _Setup:
    """One run: where it writes, who answers."""

    def __init__(self, environ: Mapping[str, str], config_file: str | None, dialogue: Dialogue) -> None:
        self._environ = environ
        self._share = share_directory(environ)
        self._file = config_file
        self._dialogue = dialogue

    def run(self, wanted: Wanted) -> None:
        known = read_configuration(self._share, self._file)
        if wanted.remove_key:
            self._remove_key(_provider_with_key(known, wanted.provider))
        elif wanted.provider is not None:
            self._write(self._decided(wanted, _preset(wanted.provider), known), known)
        else:
            self._ask(wanted, known)

    def _ask(self, wanted: Wanted, known: Configured) -> None:
        with_key = [name for name, has_key in known.providers.items() if has_key]
        titles = [preset.title for preset in PRESETS]
        titles += [f"Remove the stored key of '{plain_line(name)}'" for name in with_key]
        self._dialogue.say("Which provider do you want to use?")
        chosen = choose(self._dialogue, "Number", titles)
        if chosen >= len(PRESETS):
            self._remove_key(with_key[chosen - len(PRESETS)])
        else:
            self._write(_asked(self._dialogue, wanted, PRESETS[chosen], known, self._environ), known)
            self._try_out()

    def _decided(self, wanted: Wanted, preset: Preset, known: Configured) -> Decided:
        """What the command line says, and the preset where it says nothing."""
        if not (base_url := wanted.base_url or preset.base_url):
            raise SetupRefused(f"The provider '{preset.name}' needs --base-url.")
        if not (model := wanted.model or preset.model):
            raise SetupRefused(f"The provider '{preset.name}' needs --model: the id that it knows the model by.")
        return Decided(
            preset,
            checked_url(base_url),
            _key(wanted, preset, known, self._environ),
            checked_model(model),
            wanted.context_size or preset.context_size,
            preset.capabilities if wanted.capabilities is None else checked_capabilities(wanted.capabilities),
            {name: value for name, _ in preset.variables if (value := self._environ.get(name))},
        )

    def _write(self, decided: Decided, known: Configured) -> None:
        changes, alias = changes_for(decided, known)
        path = change_configuration(self._share, changes, self._file)
        self._dialogue.say(f"Written to {path}: provider '{decided.preset.name}', default model '{alias}'.")
        variable = RUN_TIME_KEYS.get(decided.preset.type)
        if variable and decided.api_key and self._environ.get(variable):
            self._dialogue.say(f"The variable {variable} is set: its key is used instead of the one in the file.")
        self._dialogue.say("Check it with 'kimi doctor'.")

    def _try_out(self) -> None:
        """Let the person see at once whether it works; what is written is written."""
        with suppress(EOFError, KeyboardInterrupt):
            answer = self._dialogue.ask("Send it a short question, to see whether it works? (y/n)", "y")
            if answer.lower() in ("y", "yes"):
                from kimi.interfaces.admin.setup_network import try_out  # asks the network

                self._dialogue.say(try_out(self._share, self._file, self._environ))

    def _remove_key(self, provider: str) -> None:
        path = change_configuration(self._share, {("providers", provider, "api_key"): ""}, self._file)
        self._dialogue.say(f"Removed the key of provider '{plain_line(provider)}' from {path}.")


# --- questions -------------------------------------------------------------------------------------------------


def _asked(
    dialogue: Dialogue, wanted: Wanted, preset: Preset, known: Configured, environ: Mapping[str, str]
) -> Decided:
    """What the person says; an empty answer takes what is proposed."""
    base_url = _until(dialogue, "Base URL", wanted.base_url or preset.base_url, checked_url)
    named = wanted.api_key_env is not None
    api_key = _key(wanted, preset, known, environ) if named else _asked_key(dialogue, preset, known)
    env = {name: value for name, title in preset.variables if (value := dialogue.ask(f"{title} ({name})"))}
    _show_models(dialogue, preset, base_url, api_key, environ)
    model = _until(dialogue, "Model, as the provider names it", wanted.model or preset.model, checked_model)
    size = _until(dialogue, "Context size in tokens", str(wanted.context_size or preset.context_size), checked_size)
    proposed = ", ".join(preset.capabilities if wanted.capabilities is None else wanted.capabilities) or "none"
    question = f"Capabilities, of {', '.join(CAPABILITIES)}, or none"
    names = _until(dialogue, question, proposed, lambda text: checked_capabilities(text.replace(",", " ").split()))
    return Decided(preset, base_url, api_key, model, size, names, env)


def _asked_key(dialogue: Dialogue, preset: Preset, known: Configured) -> str | None:
    variable = RUN_TIME_KEYS.get(preset.type)
    if known.providers.get(preset.name):
        otherwise = "keep the stored one"
    elif not preset.needs_key:
        otherwise = "use none"
    else:
        otherwise = f"take it from {variable} at each start" if variable else "write none"
    key = dialogue.ask_secret(f"API key (not shown; empty to {otherwise})")
    while key and not _is_key(key):
        dialogue.say("A key is one word of printable characters.")
        key = dialogue.ask_secret("API key")
    return key or _no_key(preset, known)


def _show_models(
    dialogue: Dialogue, preset: Preset, base_url: str, api_key: str | None, environ: Mapping[str, str]
) -> None:
    """What the server offers, where there is a common way to ask for it and it answers soon."""
    if preset.type not in RUN_TIME_KEYS:
        return
    from kimi.interfaces.admin.setup_network import models_there  # asks the network

    names = models_there(base_url, api_key or environ.get(RUN_TIME_KEYS[preset.type]) or "", environ)
    if names:
        more = f", and {len(names) - SHOWN_MODELS} more" if len(names) > SHOWN_MODELS else ""
        dialogue.say(f"It offers: {', '.join(map(plain_line, names[:SHOWN_MODELS]))}{more}")


def _until(dialogue: Dialogue, question: str, default: str, check: Callable[[str], T]) -> T:
    """Ask until the answer passes the check, whose SetupRefused says what is wrong."""
    while True:
        try:
            return check(dialogue.ask(question, default))
        except SetupRefused as error:
            dialogue.say(str(error))


# --- what can be written ---------------------------------------------------------------------------------------


def changes_for(decided: Decided, known: Configured) -> tuple[Changes, str]:
    """The keys to write, and the name that the model gets: its own, or one with its provider if that is taken."""
    name = decided.preset.name
    alias = decided.model
    if known.models.get(alias, name) != name:
        alias = f"{name}/{alias}"
    provider: dict[str, str | None] = {"type": decided.preset.type, "base_url": decided.base_url}
    if decided.api_key is not None:
        provider["api_key"] = decided.api_key
    return {
        ("default_model",): alias,
        **{("providers", name, key): value for key, value in provider.items()},
        **{("providers", name, "env", key): value for key, value in decided.env.items()},
        ("models", alias, "provider"): name,
        ("models", alias, "model"): decided.model,
        ("models", alias, "max_context_size"): decided.context_size,
        ("models", alias, "capabilities"): decided.capabilities or None,
    }, alias


def checked_url(text: str) -> str:
    """An address that requests can be sent to."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise SetupRefused("The base URL must look like https://host/path.")
    return text


def checked_model(text: str) -> str:
    """The id of a model; clients that look for it in the file cannot read quotation marks."""
    if not text or not text.isprintable() or '"' in text or "\\" in text:
        raise SetupRefused("The id of the model must not be empty, nor hold quotation marks or backslashes.")
    return text


def checked_size(text: str) -> int:
    """A number of tokens; `128k` is understood."""
    number = text.lower().replace("_", "").replace(",", "")
    digits = number.removesuffix("k")
    if not (digits.isascii() and digits.isdecimal() and int(digits[:12])):
        raise SetupRefused("The context size must be a whole number of tokens above 0, like 131072 or 128k.")
    return int(digits[:12]) * (1 if digits == number else 1024)


def checked_capabilities(names: Iterable[str]) -> tuple[str, ...]:
    """Known capabilities in alphabetical order; `none` stands for none."""
    found = sorted({name.lower() for name in names} - {"none"})
    if unknown := [name for name in found if name not in CAPABILITIES]:
        raise SetupRefused(f"There is no capability {plain_line(unknown[0])!r}; there are {', '.join(CAPABILITIES)}.")
    return tuple(found)


def _preset(name: str) -> Preset:
    preset = preset_named(name)
    if preset is None:
        known = ", ".join(preset.name for preset in PRESETS)
        raise SetupRefused(f"There is no provider {plain_line(name)!r} to set up; choose one of: {known}.")
    return preset


def _key(wanted: Wanted, preset: Preset, known: Configured, environ: Mapping[str, str]) -> str | None:
    """The key to write, None to keep the one that is there. It is empty where a variable is read at each start."""
    variable = RUN_TIME_KEYS.get(preset.type)
    named = wanted.api_key_env
    if named is not None:
        return "" if named == variable else _key_in(named, environ)
    if preset.needs_key and not known.providers.get(preset.name) and not (variable and environ.get(variable)):
        raise SetupRefused(f"The provider '{preset.name}' needs a key: name the variable that holds it, --api-key-env.")
    return _no_key(preset, known)


def _key_in(variable: str, environ: Mapping[str, str]) -> str:
    key = (environ.get(variable) or "").strip()
    if not key:
        raise SetupRefused(f"The environment variable {plain_line(variable)} is not set.")
    if not _is_key(key):
        raise SetupRefused(f"The environment variable {plain_line(variable)} holds no key: a key is one word.")
    return key


def _no_key(preset: Preset, known: Configured) -> str | None:
    """What is written when no key was given."""
    if known.providers.get(preset.name):
        return None
    return "" if preset.needs_key or preset.variables else NO_KEY


def _is_key(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _provider_with_key(known: Configured, named: str | None) -> str:
    with_key = [name for name, has_key in known.providers.items() if has_key]
    if named is not None and named in known.providers:
        return named
    if named is None and len(with_key) == 1:
        return with_key[0]
    shown = ", ".join(map(plain_line, with_key))
    raise SetupRefused(f"Name the provider with --provider; these have a key: {shown or 'none'}.")
