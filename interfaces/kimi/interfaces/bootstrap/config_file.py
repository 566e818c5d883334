"""The configuration file for those who change it: setup, and commands that keep a choice. A composition root."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Changes: TypeAlias = Mapping[tuple[str, ...], str | int | bool | Sequence[str] | Mapping[str, str] | None]
"""Paths of keys and their new values; None takes a key away."""


@dataclass(frozen=True, slots=True)
class Configured:
    """What a configuration file holds: providers with whether they have a key, models with their provider."""

    providers: Mapping[str, bool]
    models: Mapping[str, str]
    default_model: str = ""


def configuration_file(share: str, named: str | None) -> str:
    """The file that is read and written: the one that was named, else the default one."""
    return named or os.path.join(share, "config.toml")


def read_configuration(share: str, named: str | None) -> Configured:
    """What is configured; the default file is made if it is missing, as at any start.

    Raises:
        ConfigError: the file cannot be used.
    """
    from kimi.infrastructure.config.file import configuration_in
    from kimi.infrastructure.config.migration import ensure_default_file

    path = configuration_file(share, named)
    if named is None and not os.path.exists(path):
        ensure_default_file(share, path)
    if not os.path.exists(path):
        return Configured({}, {})
    found = configuration_in(path)
    return Configured(
        {name: bool(provider.api_key) for name, provider in found.providers.items()},
        {alias: model.provider for alias, model in found.models.items()},
        found.default_model,
    )


def change_configuration(share: str, changes: Changes, named: str | None = None) -> str:
    """Change these keys of the file and leave everything else as it is; gives its path.

    Raises:
        ConfigError: the file cannot be used or written, or would not be valid; nothing has changed then.
    """
    from kimi.infrastructure.config.edit import edit_configuration

    path = configuration_file(share, named)
    edit_configuration(path, changes)
    return path
