"""The configuration file for those who change it: setup, and commands that keep a choice. A composition root."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

ConfigChanges: TypeAlias = Mapping[tuple[str, ...], str | int | bool | Sequence[str] | Mapping[str, str] | None]
"""Paths of keys and their new values; None takes a key away."""


@dataclass(frozen=True, slots=True)
class ConfigSummary:
    """What a configuration file holds: providers with whether they have a key, models with their provider."""

    providers: Mapping[str, bool]
    models: Mapping[str, str]
    default_model: str = ""


def resolve_config_path(share: str, config_file: str | None) -> str:
    """The file that is read and written: the one that was named, else the default one."""
    return config_file or os.path.join(share, "config.toml")


def read_configuration(share: str, config_file: str | None) -> ConfigSummary:
    """What is configured; the default file is made if it is missing, as at any start.

    Raises:
        ConfigError: the file cannot be used.
    """
    from kimi.infrastructure.config.file import load_configuration_file
    from kimi.infrastructure.config.migration import ensure_default_file

    path = resolve_config_path(share, config_file)
    if config_file is None and not os.path.exists(path):
        ensure_default_file(share, path)
    if not os.path.exists(path):
        return ConfigSummary({}, {})
    found = load_configuration_file(path)
    return ConfigSummary(
        {name: bool(provider.api_key) for name, provider in found.providers.items()},
        {alias: model.provider for alias, model in found.models.items()},
        found.default_model,
    )


def change_configuration(share: str, changes: ConfigChanges, config_file: str | None = None) -> str:
    """Change these keys of the file and leave everything else as it is; gives its path.

    Raises:
        ConfigError: the file cannot be used or written, or would not be valid; nothing has changed then.
    """
    from kimi.infrastructure.config.edit import edit_configuration

    path = resolve_config_path(share, config_file)
    edit_configuration(path, changes)
    return path
