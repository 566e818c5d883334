"""The configuration file for those who change it: setup, and commands that keep a choice."""

from __future__ import annotations

import os

from kimi.application.admin.configuration import ConfigChanges, ConfigSummary
from kimi.infrastructure.config.edit import edit_configuration
from kimi.infrastructure.config.file import load_configuration_file
from kimi.infrastructure.config.migration import ensure_default_file


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
        found = load_configuration_file(self.path)
        return ConfigSummary(
            {name: bool(provider.api_key) for name, provider in found.providers.items()},
            {alias: model.provider for alias, model in found.models.items()},
            found.default_model,
        )

    def change(self, changes: ConfigChanges) -> None:
        """Change these keys and leave everything else as it is.

        Raises:
            ConfigError: the file cannot be used or written, or would not be valid; nothing has changed then.
        """
        edit_configuration(self.path, changes)
