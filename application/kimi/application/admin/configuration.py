"""The port through which use-cases read and change the configuration file (runtime spec 2.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kimi.domain.turn import ModelPrices

ConfigChanges: TypeAlias = Mapping[tuple[str, ...], str | float | bool | Sequence[str] | Mapping[str, str] | None]
"""Paths of keys, like `("providers", "local", "api_key")`, and their new values; None removes a key."""


@dataclass(frozen=True, slots=True)
class ConfiguredProvider:
    """What a summary tells of a provider beside its name. `key_variable` is "" for a type without one."""

    type: str
    base_url: str
    key_variable: str = ""
    lacks_key: bool = False
    """Whether it wants a key and the file holds none: an account login, or an endpoint that is known to want one."""


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """A model of a configuration file; `base_url` is that of its provider."""

    alias: str
    provider: str
    base_url: str
    model: str
    context_size: int
    capabilities: frozenset[str] = frozenset()
    prices: ModelPrices | None = None


@dataclass(frozen=True, slots=True)
class ConfigSummary:
    """A summary of a configuration file: providers and whether they have a key, models and their providers.

    `described` has the models with all that a catalogue may change.
    """

    providers: Mapping[str, bool]
    models: Mapping[str, str]
    default_model: str = ""
    details: Mapping[str, ConfiguredProvider] = field(default_factory=dict[str, ConfiguredProvider])
    stored_keys: Sequence[tuple[str, ...]] = ()
    """The paths of all keys that the file holds, of providers and services; the placeholder for no key is none."""
    services: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """The configured services, and whether they have a key of their own."""
    described: Sequence[ConfiguredModel] = ()


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

    def remove_logins(self) -> Sequence[str]:
        """Remove the account logins of kimi-cli that the file refers to; return the paths of what was there.

        Raises:
            ConfigError: the file cannot be used, or a login cannot be removed.
        """
        ...

    def change(self, changes: ConfigChanges) -> None:
        """Change these keys and leave everything else as it is.

        Raises:
            ConfigError: the file cannot be used or written, or would not be valid; nothing has changed then.
        """
        ...
