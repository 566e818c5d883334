"""Plugins: directories of the user that bring tools, and perhaps a skill (tools spec 3.18).

This module is pure: an adapter reads the files and checks the schemas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from kimi.domain.content.message import JsonObject
from kimi.domain.tools.mcp_tool_names import ToolOrigin, assign_exposed_names

MANIFEST_FILE: Final = "plugin.json"
MAX_TOOLS: Final = 64
"""So many tools of one plugin are used."""
MAX_WORDS: Final = 64
MAX_TOOL_NAME: Final = 128
MAX_TEXT: Final = 1024

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KNOWN_KEYS: Final = frozenset({"name", "version", "description", "config_file", "inject", "tools", "runtime"})
_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}


class PluginInvalid(ValueError):
    """The directory holds no usable plugin; the message says why, without its name."""


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A tool as its plugin describes it: `words` are the command that runs in the directory of the plugin."""

    plugin: str
    name: str
    description: str
    words: tuple[str, ...]
    parameters: JsonObject

    @property
    def origin(self) -> ToolOrigin:
        """The plugin and the name of the tool there."""
        return ToolOrigin(self.plugin, self.name)

    @property
    def approval_key(self) -> str:
        """The key of approval for the session. The name of a plugin has no slash, so no two tools share one."""
        return f"plugin:{self.plugin}/{self.name}"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin in its directory.

    `faults` say what of it cannot be used, `notes` what is left out of it on purpose. `config_file` is the file with
    its own settings, relative to the directory.
    """

    name: str
    version: str
    description: str
    directory: str
    commands: tuple[PluginCommand, ...] = ()
    config_file: str | None = None
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    has_skill: bool = False


@dataclass(frozen=True, slots=True)
class UnusablePlugin:
    """A directory among the plugins that holds none that can be used, and why."""

    name: str
    directory: str
    reason: str


@dataclass(frozen=True, slots=True)
class InstalledPlugins:
    """What was found in the directory of plugins, by name."""

    plugins: tuple[Plugin, ...] = ()
    unusable: tuple[UnusablePlugin, ...] = ()

    def list_faults(self) -> list[str]:
        """Return one line for each plugin that cannot be used, or only in part."""
        lines = [f"The plugin '{one.name}' cannot be used: {one.reason}." for one in self.unusable]
        for plugin in self.plugins:
            if plugin.faults:
                lines.append(f"The plugin '{plugin.name}' can be used in part only: {'; '.join(plugin.faults)}.")
        return lines


def parse_manifest(document: object, directory: str) -> Plugin:
    """Return the plugin that a `plugin.json` describes; a tool that cannot be used becomes a fault.

    Raises PluginInvalid. What is not known is left out, with a note.
    """
    if not isinstance(document, dict):
        raise PluginInvalid(f"its {MANIFEST_FILE} holds no JSON object")
    members = cast("dict[str, object]", document)
    name = members.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PluginInvalid(
            f"its {MANIFEST_FILE} has no 'name' of at most 64 letters, digits, dots, hyphens and underscores"
        )
    commands, faults = _parse_tools(name, members.get("tools", []))
    return Plugin(
        name,
        _text(members, "version"),
        _text(members, "description"),
        directory,
        commands,
        _parse_config_file(members.get("config_file")),
        faults,
        (*_note_wanted_values(members), *_note_unknown_keys(members)),
    )


def name_tools(plugins: Sequence[Plugin], reserved: Collection[str]) -> Mapping[ToolOrigin, str]:
    """Return the name of each tool for the model: its own, made safe for providers, or `plugin__PLUGIN__TOOL`.

    The longer one is for tools whose own name is `reserved`, or that another plugin has as well.
    """
    origins = [command.origin for plugin in plugins for command in plugin.commands]
    return assign_exposed_names(origins, reserved, {}, prefix="plugin")


def _parse_tools(plugin: str, tools: object) -> tuple[tuple[PluginCommand, ...], tuple[str, ...]]:
    if not isinstance(tools, list):
        raise PluginInvalid(f"the 'tools' of its {MANIFEST_FILE} are no list")
    given = cast("list[object]", tools)
    found: dict[str, PluginCommand] = {}
    faults: list[str] = []
    for number, tool in enumerate(given[:MAX_TOOLS], start=1):
        try:
            command = _parse_tool(plugin, tool)
            if command.name in found:
                raise PluginInvalid(f"a second one has the name '{command.name}'")
            found[command.name] = command
        except PluginInvalid as error:
            faults.append(f"tool {number} is left out, because {error}")
    if len(given) > MAX_TOOLS:
        faults.append(f"of its {len(given)} tools only the first {MAX_TOOLS} are used")
    return tuple(found.values()), tuple(faults)


def _parse_tool(plugin: str, tool: object) -> PluginCommand:
    """Raises PluginInvalid, which says what is wrong with the tool."""
    if not isinstance(tool, dict):
        raise PluginInvalid("it is no JSON object")
    members = cast("dict[str, object]", tool)
    name = members.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TOOL_NAME or not name.isprintable():
        raise PluginInvalid(f"it has no 'name' of at most {MAX_TOOL_NAME} characters")
    words = members.get("command")
    if not _is_command(words):
        raise PluginInvalid(f"the 'command' of '{name}' is no list of words")
    parameters = members.get("parameters") or _NO_PARAMETERS
    if not isinstance(parameters, dict):
        raise PluginInvalid(f"the 'parameters' of '{name}' are no JSON object")
    described = members.get("description")
    description = described if isinstance(described, str) else ""
    return PluginCommand(plugin, name, description, tuple(cast("list[str]", words)), cast("JsonObject", parameters))


def _is_command(words: object) -> bool:
    if not isinstance(words, list):
        return False
    given = cast("list[object]", words)
    is_text = all(isinstance(word, str) and "\0" not in word for word in given)
    return is_text and 0 < len(given) <= MAX_WORDS and bool(given[0])


def _parse_config_file(path: object) -> str | None:
    return path if isinstance(path, str) and path else None


def _note_wanted_values(members: Mapping[str, object]) -> tuple[str, ...]:
    """Keys are not handed to a plugin, which may send them anywhere: the user writes what it is to have."""
    wanted = members.get("inject")
    if not wanted or not isinstance(wanted, dict):
        return ()
    names = ", ".join(str(name)[:MAX_TEXT] for name in cast("dict[str, object]", wanted))
    file = _parse_config_file(members.get("config_file")) or "its configuration"
    return (f"it wants values of this program's configuration, which are not handed over: write {names} in {file}",)


def _note_unknown_keys(members: Mapping[str, object]) -> tuple[str, ...]:
    unknown = sorted(members.keys() - _KNOWN_KEYS)
    return (f"the keys {', '.join(unknown)[:MAX_TEXT]} of its {MANIFEST_FILE} are not known",) if unknown else ()


def _text(members: Mapping[str, object], key: str) -> str:
    """Return a member as one line, cut short; empty if it is absent or no text."""
    value = members.get(key)
    return " ".join(str(value).split())[:MAX_TEXT] if isinstance(value, (str, int, float)) else ""
