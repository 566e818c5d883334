"""The configuration file, as use-cases read and change it (runtime spec 2.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

ConfigChanges: TypeAlias = Mapping[tuple[str, ...], str | int | bool | Sequence[str] | Mapping[str, str] | None]
"""Paths of keys, like `("providers", "local", "api_key")`, and their new values; None removes a key."""


@dataclass(frozen=True, slots=True)
class ConfigSummary:
    """What a configuration file holds: providers with whether they have a key, models with their provider."""

    providers: Mapping[str, bool]
    models: Mapping[str, str]
    default_model: str = ""


class ConfigurationFile(Protocol):
    """One configuration file; `path` is where it is."""

    @property
    def path(self) -> str: ...

    def read(self) -> ConfigSummary:
        """Return what is configured; a default file that is missing is created, as at any start.

        Raises:
            ConfigError: the file cannot be used.
        """
        ...

    def change(self, changes: ConfigChanges) -> None:
        """Change these keys and leave everything else as it is.

        Raises:
            ConfigError: the file cannot be used or written, or would not be valid; nothing has changed then.
        """
        ...
