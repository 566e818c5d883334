"""Installs and removes plugins: from a directory or a zip archive, with bounds, without running them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from kimi.application.admin.plugins import PluginRefused
from kimi.domain.tools.plugin import MANIFEST_FILE, InstalledPlugins, Plugin, PluginInvalid
from kimi.infrastructure.plugins.copying import copy_directory, unpack_archive
from kimi.infrastructure.plugins.plugin_files import list_plugin_directories, load_plugin, read_plugins

_REMOTE = ("git@", "ssh:")


@dataclass(frozen=True, slots=True)
class CopiedPlugin:
    """A plugin below a temporary directory of the share directory; implements `StagedPlugin`."""

    plugin: Plugin
    target: str

    def install(self) -> str:
        """See `StagedPlugin`."""
        try:
            os.makedirs(os.path.dirname(self.target), mode=0o700, exist_ok=True)
            if os.path.lexists(self.target):  # a rename would replace an empty directory
                raise PluginRefused(f"{self.target} exists already; remove it first.")
            os.rename(self.plugin.directory, self.target)
        except OSError as error:
            raise PluginRefused(f"{self.target} cannot be made: {error.strerror}.") from None
        return self.target


class UserPluginStore:
    """The plugins below a share directory; implements the port `PluginStore`."""

    def __init__(self, share_dir: str) -> None:
        self._share_dir = share_dir
        self.path = os.path.join(share_dir, "plugins")

    def load(self) -> InstalledPlugins:
        """See `PluginStore`."""
        return read_plugins(self.path)

    @contextmanager
    def stage(self, source: str) -> Generator[CopiedPlugin, None, None]:
        """See `PluginStore`."""
        if "://" in source or source.startswith(_REMOTE):
            raise PluginRefused(
                f"'{source}' is not on this machine. Fetch it yourself, look at it, and install that directory or zip."
            )
        path = os.path.abspath(os.path.expanduser(source))
        try:
            os.makedirs(self._share_dir, mode=0o700, exist_ok=True)
            staging = tempfile.mkdtemp(prefix=".plugin-", dir=self._share_dir)
        except OSError as error:
            raise PluginRefused(f"{self._share_dir} cannot be written: {error.strerror}.") from None
        try:
            plugin = _copy_plugin(path, os.path.join(staging, "content"))
            self._check_is_new(plugin.name)
            yield CopiedPlugin(plugin, os.path.join(self.path, plugin.name))
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def remove(self, name: str) -> str:
        """See `PluginStore`."""
        # The name is compared, never joined to a path.
        installed = self.load()
        known = {os.path.basename(path): path for path in list_plugin_directories(self.path)}
        known |= {plugin.name: plugin.directory for plugin in installed.plugins}
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise PluginRefused(f"No plugin '{name}' is installed. Installed: {there}.")
        try:
            _delete(known[name], self._share_dir)
        except OSError as error:
            raise PluginRefused(f"{known[name]} cannot be removed: {error.strerror}.") from None
        return known[name]

    def _check_is_new(self, name: str) -> None:
        taken = {os.path.basename(path) for path in list_plugin_directories(self.path)}
        taken |= {plugin.name for plugin in self.load().plugins}
        if name.casefold() in {one.casefold() for one in taken}:
            raise PluginRefused(f"A plugin '{name}' is installed already. Remove it first: kimi plugin remove {name}")


def _copy_plugin(source: str, target: str) -> Plugin:
    try:
        if os.path.isdir(source):
            copy_directory(source, target)
        elif os.path.isfile(source):
            unpack_archive(source, target)
        else:
            raise PluginRefused(f"{source} is neither a directory nor a zip archive.")
        return load_plugin(_find_root(target))
    except PluginInvalid as error:
        raise PluginRefused(f"{source} holds no plugin that can be used: {error}.") from None
    except OSError as error:
        raise PluginRefused(f"{source} cannot be copied: {error.strerror or error}.") from None


def _find_root(directory: str) -> str:
    """Return the directory of the manifest: this one, or the only one in it, as archives often have it."""
    names = os.listdir(directory)
    inner = os.path.join(directory, names[0]) if len(names) == 1 else directory
    return inner if os.path.isfile(os.path.join(inner, MANIFEST_FILE)) else directory


def _delete(path: str, share_dir: str) -> None:
    """Raises OSError. A directory is moved away first: a plugin is there, or it is not."""
    if os.path.islink(path):
        os.unlink(path)
        return
    with tempfile.TemporaryDirectory(prefix=".plugin-", dir=share_dir) as away:
        moved = os.path.join(away, "content")
        os.rename(path, moved)
