"""Changes single keys of a configuration file and leaves everything else unchanged (runtime spec 2.7).

Comments, unknown keys, order and blank lines of a TOML file stay; a JSON file stays JSON. The result is checked before
it is written, so that the program can always start with the file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, cast

from kimi.application.admin.configuration import ConfigChanges
from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.file import (
    check_configuration,
    is_json,
    parse_configuration_text,
    read_configuration_text,
)
from kimi.infrastructure.config.private_file import lock_for_change, write_private_file

KeyPath: TypeAlias = tuple[int | str, ...]
"""Where an entry stands: keys of tables and positions in lists."""

Table: TypeAlias = MutableMapping[str, Any]
"""A parsed table of a configuration: the JSON edge."""


def edit_configuration(path: str, changes: ConfigChanges) -> None:
    """Set or remove these keys in the file, which need not exist; missing tables are made.

    The file is replaced atomically and is readable only for its owner; a link stays a link. Other programs that change
    it in this way wait meanwhile. Nothing of the old content is kept elsewhere: a removed key is gone.

    Raises:
        ConfigError: the file cannot be read, parsed or written, or the result would not be a valid configuration. The
            file is then unchanged. The message names it and holds no value.
    """
    changes = {keys: list(value) if isinstance(value, tuple) else value for keys, value in changes.items()}
    try:
        # The lock covers the reading as well, so that no change of another program is lost.
        with lock_for_change(path):
            write_private_file(path, _apply_changes(path, changes))
    except OSError as error:
        raise ConfigError(f"Cannot write configuration file {path}: {error.strerror}") from None


def take_out_entries(path: str, entries: Sequence[KeyPath]) -> None:
    """Take entries out of the file, in this order; comments and everything else stay.

    Raises:
        ConfigError: the file cannot be read, parsed or written, or cannot be used afterwards; it is then unchanged.
    """
    try:
        with lock_for_change(path):
            text = read_configuration_text(path, newline="")
            write_private_file(path, _take_out(text, entries, path))
    except OSError as error:
        raise ConfigError(f"Cannot write configuration file {path}: {error.strerror}") from None


def _take_out(text: str, entries: Sequence[KeyPath], path: str) -> str:
    if is_json(path):
        raw = parse_configuration_text(text, path)
        for entry in entries:
            remove_entry(raw, entry)
        changed = _encode_json(raw)
    else:
        import tomlkit

        document = tomlkit.parse(text)
        for entry in entries:
            remove_entry(document, entry)
        changed = tomlkit.dumps(document)
    check_configuration(parse_configuration_text(changed, path), path)
    return changed


def remove_entry(table: Any, path: KeyPath) -> None:
    """Remove a key or an element of a list from plain data or a TOML document."""
    *way, last = path
    for step in way:
        table = table[step]
    del table[last]


def _apply_changes(path: str, changes: ConfigChanges) -> str:
    """The text of the file with the changes."""
    text = read_configuration_text(path, newline="", missing="")
    raw: Table = parse_configuration_text(text, path, load_json=_parse_json)
    for keys, value in changes.items():
        _put_key(raw, keys, value)
    check_configuration(raw, path)
    return _encode_json(raw) if is_json(path) else _apply_toml_changes(text, changes, raw, path)


def _parse_json(text: str) -> Table:
    raw: Any = json.loads(text or "{}")
    if not isinstance(raw, dict):
        raise ValueError("the configuration must be an object of keys and values")
    return cast("Table", raw)


def _encode_json(raw: Table) -> str:
    return json.dumps(raw, indent=2, ensure_ascii=False) + "\n"


def _put_key(table: Table, keys: tuple[str, ...], value: Any) -> None:
    """Set or remove a key in plain data; a value in the way of a table is replaced by the table."""
    *way, last = keys
    for name in way:
        inner = table.get(name)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = table[name] = {}
        table = cast("Table", inner)
    if value is None:
        table.pop(last, None)
    else:
        table[last] = value


# --- TOML ------------------------------------------------------------------------------------------------------


def _apply_toml_changes(text: str, changes: ConfigChanges, expected: Table, path: str) -> str:
    """`text` with the changes. Raises ConfigError when it is written in a way that does not allow them."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        for keys, value in changes.items():
            _put_toml_key(document, keys, value)
        changed = tomlkit.dumps(document)
        if tomllib.loads(changed) == expected:
            return changed
    except (TOMLKitError, ValueError, KeyError, TypeError):
        pass
    names = ", ".join(".".join(keys) for keys in changes)
    raise ConfigError(f"Cannot change {path} without rewriting it; set these keys by hand: {names}.")


def _put_toml_key(table: Any, keys: tuple[str, ...], value: Any) -> None:
    from tomlkit.items import InlineTable

    *way, last = keys
    for depth, name in enumerate(way):
        if not isinstance(table.get(name), Mapping):
            if value is None:
                return
            table[name] = _new_table(inline=isinstance(table, InlineTable), is_above=depth < len(way) - 1)
        table = table[name]
    if value is None:
        if last in table:
            table.remove(last)
    else:
        table[last] = value


def _new_table(*, inline: bool, is_above: bool) -> Any:
    """Return an empty table; one that only contains other tables gets no header of its own."""
    import tomlkit

    return tomlkit.inline_table() if inline else tomlkit.table(is_super_table=is_above)
