"""Looks at a configuration that kimi-cli has written: what is refused, what does nothing (runtime spec 1.6, 2.3)."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from inspect import isclass
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, ValidationError

from kimi.application.admin.migration import ConfigurationReview
from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.edit import KeyPath, remove_entry, take_out_entries
from kimi.infrastructure.config.file import parse_configuration_text, read_configuration_text
from kimi.infrastructure.config.model_choice import describe_provider
from kimi.infrastructure.config.schema import Configuration, validate_configuration

_ROUNDS: Final = 5
"""What is taken out can uncover another mistake: a model that the default names."""

_KEPT_BY_HAND: Final = frozenset({"approval", "sandbox", "files"})
"""Sections whose entries forbid things: taking one out would open what it closes."""

_ALIASES: Final = frozenset({"max_steps_per_run"})
_WITHOUT_EFFECT: Final = frozenset(
    {"telemetry", "skip_afk_prompt_injection", "notifications", "display_name", "oauth", "device_headers"}
)


class ReviewedConfiguration:
    """A configuration file, with what of it can be used. Nothing is written before `mend`."""

    def __init__(self, share_dir: str) -> None:
        path, legacy = os.path.join(share_dir, "config.toml"), os.path.join(share_dir, "config.json")
        is_legacy = not os.path.exists(path) and os.path.isfile(legacy)
        self.path = legacy if is_legacy else path
        self.usable: dict[str, Any] = {}
        self._removals: list[KeyPath] = []
        if not os.path.exists(self.path):
            self.review = ConfigurationReview("")
            return
        try:
            raw = parse_configuration_text(read_configuration_text(self.path), self.path)
        except ConfigError as error:
            self.review = ConfigurationReview(self.path, str(error), is_legacy=is_legacy)
            return
        self.usable, self._removals, reasons, problem = _take_out_refused(raw)
        problem = f"Invalid configuration file {self.path}: {problem}" if problem else ""
        unused = tuple(_list_without_effect(Configuration, self.usable, ()))
        services = self.usable.get("services")
        configured = tuple(cast("dict[str, Any]", services)) if isinstance(services, dict) else ()
        self.review = ConfigurationReview(self.path, problem, tuple(reasons), unused, configured, is_legacy)

    def list_providers(self, environ: Mapping[str, str]) -> Sequence[ModelSettings]:
        """Return the providers with what the environment adds; none when the file cannot be used."""
        if self.review.problem:
            return ()
        providers = validate_configuration(self.usable).providers
        return [describe_provider(name, provider, environ) for name, provider in providers.items()]

    def mend(self) -> None:
        """Take the refused entries out of the file; comments and everything else stay. Raises ConfigError."""
        if not self._removals or self.review.problem:
            return
        take_out_entries(self.path, self._removals)


# --- what is refused -------------------------------------------------------------------------------------------


def _take_out_refused(raw: Any) -> tuple[dict[str, Any], list[KeyPath], list[str], str]:
    """Return what of a configuration can be used, what was taken out of it in this order, why, and what is left."""
    if not isinstance(raw, dict):
        return {}, [], [], "the configuration must be an object of keys and values"
    usable = copy.deepcopy(cast("dict[str, Any]", raw))
    removed: list[KeyPath] = []
    reasons: dict[KeyPath, str] = {}
    for _ in range(_ROUNDS):
        found = _find_refused(usable)
        if not found:
            break
        for path in sorted(found, key=_order_for_removal, reverse=True):
            remove_entry(usable, path)
            removed.append(path)
        reasons |= found
    try:
        validate_configuration(usable)
    except ValueError as error:
        return usable, removed, [], str(error)
    return usable, removed, [f"{_format_path(path)} ({why})" for path, why in reasons.items()], ""


def _find_refused(raw: dict[str, Any]) -> dict[KeyPath, str]:
    """Return the entries that may be taken out because they are refused, with the reason."""
    found: dict[KeyPath, str] = {}
    try:
        configuration = Configuration.model_validate(raw)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            path = _find_removable(raw, detail["loc"])
            if path and path[0] not in _KEPT_BY_HAND and not (path[0] in ("providers", "models") and len(path) < 3):
                found[path] = detail["msg"]
        return found
    if configuration.default_model and configuration.default_model not in configuration.models:
        found["default_model",] = f"there is no model '{configuration.default_model}'"
    return found


def _find_removable(raw: dict[str, Any], location: KeyPath) -> KeyPath:
    """Return what to take out because of an error there: the entry, or the table around it that must have it."""
    path = _find_existing(raw, location)
    if len(path) < 2:
        return path
    trial = copy.deepcopy(raw)
    remove_entry(trial, path)
    try:
        Configuration.model_validate(trial)
    except ValidationError as error:
        if any(one["type"] == "missing" and one["loc"] == path for one in error.errors(include_url=False)):
            return path[:-1]
    return path


def _find_existing(raw: Any, location: KeyPath) -> KeyPath:
    """Return the part of a location that exists in the data: what is missing cannot be taken out."""
    path: list[int | str] = []
    for step in location:
        if isinstance(raw, Mapping) and step in raw:
            raw = cast("Mapping[Any, Any]", raw)[step]
        elif isinstance(raw, list) and isinstance(step, int) and step < len(cast("list[Any]", raw)):
            raw = cast("list[Any]", raw)[step]
        else:
            break
        path.append(step)
    return tuple(path)


def _order_for_removal(path: KeyPath) -> tuple[tuple[bool, int, str], ...]:
    """Order the later of two entries of a list behind the earlier: taken out first, it moves none."""
    return tuple((isinstance(step, int), step if isinstance(step, int) else 0, str(step)) for step in path)


def _format_path(path: KeyPath) -> str:
    return ".".join(str(step) for step in path)


# --- what does nothing -----------------------------------------------------------------------------------------


def _list_without_effect(model: type[BaseModel], table: Mapping[str, Any], path: KeyPath) -> Iterator[str]:
    """Yield the keys of a table that are not known, or known and without effect."""
    for key, value in table.items():
        field = model.model_fields.get(key)
        if key in _WITHOUT_EFFECT or (field is None and key not in _ALIASES):
            yield _format_path((*path, key))
        elif field is not None:
            for inner in _find_models(field.annotation):
                yield from _list_below(inner, field.annotation, value, (*path, key))


def _list_below(model: type[BaseModel], annotation: object, value: Any, path: KeyPath) -> Iterator[str]:
    if isinstance(value, Mapping) and not isclass(annotation) and getattr(annotation, "__origin__", None) is dict:
        for name, entry in cast("Mapping[str, Any]", value).items():
            if isinstance(entry, Mapping):
                yield from _list_without_effect(model, cast("Mapping[str, Any]", entry), (*path, name))
    elif isinstance(value, Mapping):
        yield from _list_without_effect(model, cast("Mapping[str, Any]", value), path)
    elif isinstance(value, list):
        for at, entry in enumerate(cast("list[Any]", value)):
            if isinstance(entry, Mapping):
                yield from _list_without_effect(model, cast("Mapping[str, Any]", entry), (*path, at))


def _find_models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the tables that an annotation names, at any depth."""
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in get_args(annotation):
        yield from _find_models(inner)
