"""The first start: a default `config.toml`, or one made from a `config.json` of older versions (runtime spec 2.2)."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.schema import Configuration, validate_configuration

_log = logging.getLogger("kimi.settings")

_HEADER = """\
# Keys with their defaults; one that is left out has the same value.
# A provider and a model make it useful, for example:
#
#   default_model = "main"            (the line below; it must stay above the first [section])
#   [providers.local]
#   type = "openai_legacy"            # or "kimi"
#   base_url = "http://127.0.0.1:8000/v1"
#   api_key = "none"
#   [models.main]
#   provider = "local"
#   model = "qwen3-coder"
#   max_context_size = 131072

"""

_OMITTED_TABLES = frozenset({"providers", "models", "hooks", "services"})
"""Empty tables and arrays of tables: written out, they would forbid to add the first entry with a [header]."""


def ensure_default_file(share_dir: str, path: str) -> None:
    """Make `path` exist: from `config.json` beside it (kept as `config.json.bak`), else with all defaults.

    If the share directory cannot be written, this is logged and the defaults hold without a file.

    Raises:
        ConfigError: the legacy file exists and is unusable, or another program does not stop changing `path`.
    """
    legacy = os.path.join(share_dir, "config.json")
    try:
        if os.path.isfile(legacy):
            _migrate_legacy_file(legacy, path)
        else:
            _create_file(path, _HEADER + encode_toml(_dump_defaults()))
    except OSError as error:
        _log.warning("Could not write the first configuration file %s: %s", path, error.strerror)


def encode_toml(table: Mapping[str, Any]) -> str:
    """Encode `table` as a TOML document; None values are left out, because TOML has no null."""
    return "\n".join(_format_table(table, ())).lstrip("\n") + "\n"


def _migrate_legacy_file(legacy_path: str, path: str) -> None:
    raw = _load_legacy_file(legacy_path)
    _create_file(path, encode_toml(raw))
    # The old file is renamed last: a crash before that loses no configuration.
    os.chmod(legacy_path, 0o600)
    os.replace(legacy_path, f"{legacy_path}.bak")
    _log.info("Migrated %s to %s", legacy_path, path)


def _load_legacy_file(legacy_path: str) -> dict[str, Any]:
    with open(legacy_path, encoding="utf-8-sig", errors="replace") as file:
        text = file.read()
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Invalid JSON in legacy configuration file: {error} ({legacy_path})") from None
    try:
        validate_configuration(raw)
    except ValueError as error:
        raise ConfigError(f"Invalid legacy configuration file: {error} ({legacy_path})") from None
    return raw


def _dump_defaults() -> dict[str, Any]:
    spelled_out = Configuration().model_dump(exclude=set(_OMITTED_TABLES), exclude_none=True)
    del spelled_out["approval"]["rules"]
    return spelled_out


def _create_file(path: str, text: str) -> None:
    """Write `path` whole, readable only for its owner, unless another process created it meanwhile."""
    from kimi.infrastructure.config.private_file import (  # start-up time: the first start only
        create_private_file,
        lock_for_change,
    )

    with lock_for_change(path):
        create_private_file(path, text)


# --- a small TOML writer ---------------------------------------------------------------------------------------

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _format_table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Format plain values first: after the first [header] they would belong to that table."""
    for key, value in table.items():
        if value is not None and not _has_own_header(value):
            yield f"{_format_key(key)} = {_format_value(value)}"
    for key, value in table.items():
        if _has_own_header(value):
            yield from _format_headed_table(value, (*path, key))


def _format_headed_table(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    name = ".".join(_format_key(part) for part in path)
    if isinstance(value, Mapping):
        yield f"\n[{name}]"
        yield from _format_table(cast(Mapping[str, Any], value), path)
        return
    for entry in value:
        yield f"\n[[{name}]]"
        yield from _format_table(entry, path)


def _has_own_header(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    entries = cast(list[Any], value) if isinstance(value, list) else []
    return bool(entries) and all(isinstance(entry, Mapping) for entry in entries)


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, Mapping):
        pairs = cast(Mapping[str, Any], value)
        return (
            "{" + ", ".join(f"{_format_key(k)} = {_format_value(v)}" for k, v in pairs.items() if v is not None) + "}"
        )
    if isinstance(value, (list, tuple)):
        entries = cast(Sequence[Any], value)
        return "[" + ", ".join(_format_value(entry) for entry in entries if entry is not None) + "]"
    return _format_number(value)


def _format_number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(text := json.dumps(value), text)


def _format_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quote(name)


def _quote(text: str) -> str:
    """Quote a TOML basic string.

    JSON's escapes are those of TOML, except for DEL; surrogates cannot be written at all.
    """
    writable = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(writable, ensure_ascii=False).replace("\x7f", "\\u007f")
