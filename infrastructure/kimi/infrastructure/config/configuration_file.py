"""The configuration file for those who change it: setup, and commands that keep a choice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from kimi.application.admin.configuration import ConfigChanges, ConfigSummary, ConfiguredModel, ConfiguredProvider
from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.edit import edit_configuration
from kimi.infrastructure.config.file import load_configuration_file
from kimi.infrastructure.config.migration import ensure_default_file
from kimi.infrastructure.config.model_choice import describe_provider, make_prices
from kimi.infrastructure.config.schema import Configuration, ProviderConfig

_PLACEHOLDER_KEYS: Final = frozenset({"", "none"})
"""What stands in place of a key for a server that needs none."""


class UserConfigurationFile:
    """The file that the command line names, else `config.toml` in the share directory."""

    def __init__(self, share_dir: str, named_path: str | None = None) -> None:
        self._share_dir = share_dir
        self._is_default = named_path is None
        self.path = named_path or os.path.join(share_dir, "config.toml")

    def read(self) -> ConfigSummary:
        """Return what is configured; a default file that is missing is created.

        Raises:
            ConfigError: the file cannot be used.
        """
        if self._is_default and not os.path.exists(self.path):
            ensure_default_file(self._share_dir, self.path)
        if not os.path.exists(self.path):
            return ConfigSummary({}, {})
        return _summarize(load_configuration_file(self.path))

    def remove_logins(self) -> Sequence[str]:
        """Remove the account logins of kimi-cli that the file refers to; return the paths of what was there.

        Raises:
            ConfigError: the file cannot be used, or a login cannot be removed.
        """
        if not os.path.exists(self.path):
            return ()
        removed: list[str] = []
        for path in sorted(set(self._list_logins(load_configuration_file(self.path)))):
            try:
                os.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ConfigError(f"Cannot remove the login {path}: {error.strerror}") from None
            removed.append(path)
        return removed

    def change(self, changes: ConfigChanges) -> None:
        """Change these keys and leave everything else as it is.

        Raises:
            ConfigError: the file cannot be used or written, or would not be valid; nothing has changed then.
        """
        edit_configuration(self.path, changes)

    def _list_logins(self, found: Configuration) -> Iterator[str]:
        """Yield the files of logins, by the last part of their keys: a key leads nowhere else."""
        services = (found.services.moonshot_search, found.services.moonshot_fetch)
        for endpoint in (*found.providers.values(), *services):
            if endpoint is not None and endpoint.oauth is not None and endpoint.oauth.storage == "file":
                name = endpoint.oauth.key.replace("\\", "/").rpartition("/")[2]
                yield os.path.join(self._share_dir, "credentials", f"{name}.json")


def _summarize(found: Configuration) -> ConfigSummary:
    services = {
        name: service
        for name in ("moonshot_search", "moonshot_fetch")
        if (service := getattr(found.services, name)) is not None
    }
    return ConfigSummary(
        {name: bool(provider.api_key) for name, provider in found.providers.items()},
        {alias: model.provider for alias, model in found.models.items()},
        found.default_model,
        {name: _describe(name, provider) for name, provider in found.providers.items()},
        (
            *(("providers", name, "api_key") for name, one in found.providers.items() if _has_key(one.api_key)),
            *(("services", name, "api_key") for name, one in services.items() if _has_key(one.api_key)),
        ),
        {name: bool(service.api_key) for name, service in services.items()},
        [_describe_model(found, alias) for alias in found.models],
    )


def _describe(name: str, provider: ProviderConfig) -> ConfiguredProvider:
    settings = describe_provider(name, provider, {})
    return ConfiguredProvider(provider.type, provider.base_url, settings.key_variable, settings.lacks_key)


def _has_key(key: str) -> bool:
    return key.strip() not in _PLACEHOLDER_KEYS


def _describe_model(found: Configuration, alias: str) -> ConfiguredModel:
    model = found.models[alias]
    return ConfiguredModel(
        alias,
        model.provider,
        found.providers[model.provider].base_url,
        model.model,
        model.max_context_size,
        frozenset[str](model.capabilities),
        make_prices(model),
    )
