"""The user's plugins as `kimi plugin` and `kimi doctor` see them (tools spec 3.18)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from kimi.domain.errors import KimiError

if TYPE_CHECKING:
    from kimi.domain.tools.plugin import InstalledPlugins, Plugin


class PluginRefused(KimiError):
    """A plugin cannot be installed or removed; the message says why, and what to do."""


class StagedPlugin(Protocol):
    """A plugin that was copied, and checked, but is not installed yet."""

    @property
    def plugin(self) -> Plugin:
        """The plugin, in a directory of its own."""
        ...

    def install(self) -> str:
        """Put it among the user's plugins and return its directory. Raises PluginRefused."""
        ...


class PluginStore(Protocol):
    """The directory with the user's plugins. All methods block."""

    @property
    def path(self) -> str:
        """The directory, which need not exist."""
        ...

    def load(self) -> InstalledPlugins:
        """Return what is installed. Raises nothing: what cannot be used is in the result."""
        ...

    def stage(self, source: str) -> AbstractContextManager[StagedPlugin]:
        """Copy the plugin in a directory or zip archive; on leaving, what was not installed is gone.

        Nothing of it is run. Raises PluginRefused: it holds no usable plugin, exceeds a limit, or is installed already.
        """
        ...

    def remove(self, name: str) -> str:
        """Delete the plugin with this name, usable or not, and nothing else; return the directory that it had.

        Of a plugin that is a link only the link is deleted. Raises PluginRefused.
        """
        ...
