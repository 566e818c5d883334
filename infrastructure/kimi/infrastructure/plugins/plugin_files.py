"""Plugins in files: found below the share directory, read with bounds, their schemas checked (tools spec 3.18)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from kimi.application.toolset.foreign_schema import NO_OBJECT, normalise_parameters
from kimi.domain.permissions.path_rules import is_within
from kimi.domain.tools.plugin import (
    MANIFEST_FILE,
    InstalledPlugins,
    Plugin,
    PluginCommand,
    PluginInvalid,
    UnusablePlugin,
    parse_manifest,
)
from kimi.infrastructure.definitions.project_files import PromptFiles, name_refusal
from kimi.infrastructure.definitions.skill_files import SKILL_FILE
from kimi.infrastructure.json_schema import check_schema

logger = logging.getLogger(__name__)

MAX_PLUGINS = 100
MAX_MANIFEST_BYTES = 256 * 1024
_MAX_ENTRIES = 2_000


def load_plugins(directory: str) -> InstalledPlugins:
    """Read the plugins below `directory` for a conversation; the log says what cannot be used. Blocks."""
    installed = read_plugins(directory)
    for fault in installed.list_faults():
        logger.warning("%s", fault)
    for plugin in installed.plugins:
        for note in plugin.notes:
            logger.info("plugin %s: %s", plugin.name, note)
    return installed


def read_plugins(directory: str) -> InstalledPlugins:
    """Return the plugins below `directory`, and what there cannot be used. Blocks."""
    plugins: dict[str, Plugin] = {}
    unusable: list[UnusablePlugin] = []
    for path in list_plugin_directories(directory):
        try:
            if len(plugins) == MAX_PLUGINS:
                raise PluginInvalid(f"the {MAX_PLUGINS} before it are as many as are used")
            plugin = load_plugin(path)
            if plugin.name.casefold() in plugins:
                raise PluginInvalid(f"the plugin in {plugins[plugin.name.casefold()].directory} has the same name")
            plugins[plugin.name.casefold()] = plugin
        except PluginInvalid as error:
            unusable.append(UnusablePlugin(os.path.basename(path), path, str(error)))
    return InstalledPlugins(tuple(plugins.values()), tuple(unusable))


def list_plugin_directories(directory: str) -> Iterator[str]:
    """Yield the directories of plugins by name; hidden ones are not meant."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entry.path for entry in islice(entries, _MAX_ENTRIES) if not entry.name.startswith("."))
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            logger.warning("no plugins are read from %s: %s", directory, error.strerror)
        return
    yield from filter(os.path.isdir, found)


def load_plugin(directory: str) -> Plugin:
    """Return the plugin in this directory. Raises PluginInvalid. Blocks."""
    plugin = parse_manifest(_read_manifest(os.path.join(directory, MANIFEST_FILE)), directory)
    usable: list[PluginCommand] = []
    faults = list(plugin.faults)
    for command in plugin.commands:
        parameters = normalise_parameters(command.parameters)
        fault = NO_OBJECT if parameters is None else check_schema(parameters)
        if parameters is None or fault is not None:
            faults.append(f"the tool '{command.name}' is left out, because of its parameters: {fault}")
        else:
            usable.append(replace(command, parameters=parameters))
    has_skill = os.path.isfile(os.path.join(directory, SKILL_FILE))
    if not (usable or has_skill):
        raise PluginInvalid("; ".join(faults) or f"it brings neither tools nor a {SKILL_FILE}")
    return replace(plugin, commands=tuple(usable), faults=tuple(faults), has_skill=has_skill)


def list_config_files(installed: InstalledPlugins) -> list[str]:
    """Return the files that may hold keys of plugins: those that manifests name in their directories."""
    found: dict[str, None] = {}
    for plugin in installed.plugins:
        path = os.path.normpath(os.path.join(plugin.directory, plugin.config_file or "."))
        if is_within(path, (plugin.directory,)) and path != plugin.directory:
            found |= dict.fromkeys((path, os.path.realpath(path)))
    return list(found)


def list_command_files(installed: InstalledPlugins) -> list[str]:
    """Return the files elsewhere that the commands of plugins name: who changes one changes what runs."""
    words = (word for plugin in installed.plugins for command in plugin.commands for word in command.words)
    return [word for word in words if os.path.isabs(word) and os.path.isfile(word)]


def _read_manifest(path: str) -> object:
    """Raises PluginInvalid."""
    try:
        text = PromptFiles(os.path.dirname(path)).read(path, MAX_MANIFEST_BYTES, None)
    except FileNotFoundError:
        raise PluginInvalid(f"it has no {MANIFEST_FILE}") from None
    except (OSError, ValueError) as error:
        raise PluginInvalid(f"its {MANIFEST_FILE} is not read: {name_refusal(error)}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PluginInvalid(f"its {MANIFEST_FILE} is no JSON: {error}") from None
