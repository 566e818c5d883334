"""The output of `kimi plugin` (tools spec 3.18). Every function returns the exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from shlex import join
from typing import Any, Final

from kimi.application.admin.plugins import PluginRefused
from kimi.application.settings.flags import share_directory
from kimi.domain.errors import UsageError
from kimi.domain.tools.plugin import Plugin, UnusablePlugin
from kimi.interfaces.bootstrap.admin import build_plugin_store
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line, escape_text

_NEEDS_YES: Final = "Nobody is there to confirm; look at what it adds, and say --yes to install it"
_RUNS_PROGRAMS: Final = "Its tools run programs on this machine; you are asked about each call unless you allow it."
_MAX_LINE: Final = 1_000


def list_plugins(as_json: bool) -> int:
    """Show every plugin, and why some cannot be used."""
    store = build_plugin_store(share_directory(os.environ))
    installed = store.load()
    if as_json:
        plugins = [_encode_plugin(plugin) for plugin in installed.plugins]
        unusable = [{"name": one.name, "directory": one.directory, "reason": one.reason} for one in installed.unusable]
        _print_json({"path": store.path, "plugins": plugins, "unusable": unusable})
        return 0
    _print_line(f"Plugins are in {store.path}")
    for plugin in installed.plugins:
        for line in _describe_plugin(plugin):
            _print_line(f"  {line}")
    for one in installed.unusable:
        _print_line(f"  {_describe_unusable(one)}")
    if not (installed.plugins or installed.unusable):
        _print_line("No plugins are installed.")
    return 0


def install_plugin(source: str, yes: bool, as_json: bool) -> int:
    """Install a plugin after the user has seen what it adds. Raises UsageError: nobody can be asked."""
    store = build_plugin_store(share_directory(os.environ))
    try:
        with store.stage(source) as staged:
            show = _print_note if as_json else _print_line
            for line in _describe_plugin(staged.plugin):
                show(line)
            if staged.plugin.commands:
                show(_RUNS_PROGRAMS)
            if not (yes or _confirm(staged.plugin)):
                write_stderr("Nothing was installed.\n")
                return 1
            directory = staged.install()
            if as_json:
                _print_json(_encode_plugin(staged.plugin) | {"directory": directory})
            else:
                _print_line(f"Installed the plugin '{staged.plugin.name}' in {directory}.")
    except PluginRefused as error:
        return _report_refusal(error)
    return 0


def remove_plugin(name: str, as_json: bool) -> int:
    """Delete a plugin."""
    try:
        directory = build_plugin_store(share_directory(os.environ)).remove(name)
    except PluginRefused as error:
        return _report_refusal(error)
    if as_json:
        _print_json({"name": name, "directory": directory})
    else:
        _print_line(f"Removed the plugin '{name}' from {directory}.")
    return 0


def _confirm(plugin: Plugin) -> bool:
    """Ask on the terminal. Raises UsageError without one: what answers there may be meant for something else."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(_NEEDS_YES, "--yes")
    write_stderr(f"Install the plugin '{plugin.name}'? [y/N]: ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _describe_plugin(plugin: Plugin) -> Iterator[str]:
    version = f" {plugin.version}" if plugin.version else ""
    yield _shorten(f"{plugin.name}{version}: {plugin.description or 'no description'}")
    for command in plugin.commands:
        yield "  " + _shorten(f"tool {command.name}: runs {join(command.words)}")
    if plugin.has_skill:
        yield "  skill: SKILL.md"
    for fault in plugin.faults:
        yield "  " + _shorten(f"not usable: {fault}")
    for note in plugin.notes:
        yield "  " + _shorten(f"note: {note}")


def _describe_unusable(one: UnusablePlugin) -> str:
    return _shorten(f"{one.name} [cannot be used: {one.reason}]")


def _shorten(text: str) -> str:
    return escape_line(text, _MAX_LINE)


def _encode_plugin(plugin: Plugin) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "version": plugin.version,
        "description": plugin.description,
        "directory": plugin.directory,
        "tools": [
            {"name": one.name, "description": one.description, "command": list(one.words)} for one in plugin.commands
        ],
        "skill": plugin.has_skill,
        "config_file": plugin.config_file,
        "faults": list(plugin.faults),
        "notes": list(plugin.notes),
    }


def _report_refusal(error: PluginRefused) -> int:
    write_stderr(f"{_shorten(str(error))}\n")
    return 1


def _print_note(text: str) -> None:
    write_stderr(f"{escape_text(text)}\n")


def _print_json(value: dict[str, Any]) -> None:
    _print_line(json.dumps(value))


def _print_line(text: str) -> None:
    """Write a line to stdout at once. What its encoding lacks is escaped, and what controls a terminal."""
    sys.stdout.buffer.write(f"{escape_text(text)}\n".encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
