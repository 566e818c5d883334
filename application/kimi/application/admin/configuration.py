"""The port through which use-cases read and change the configuration file (runtime spec 2.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

ConfigChanges: TypeAlias = Mapping[tuple[str, ...], str | int | bool | Sequence[str] | Mapping[str, str] | None]
"""Paths of keys, like `("providers", "local", "api_key")`, and their new values; None removes a key."""


@dataclass(frozen=True, slots=True)
class ConfigSummary:
    """A summary of a configuration file: providers and whether they have a key, models and their providers."""

    providers: Mapping[str, bool]
    models: Mapping[str, str]
    default_model: str = ""


class ConfigurationFile(Protocol):
    """A configuration file at `path`."""

    @property
    def path(self) -> str: ...

    def read(self) -> ConfigSummary:
        """Return a summary of the file. A missing default file is created, as at any start of the program.

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
