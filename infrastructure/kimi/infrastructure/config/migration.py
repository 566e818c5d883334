"""The first start: a default `config.toml`, or one made from a `config.json` of older versions (runtime spec 2.2)."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.schema import Configuration, validated

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

_LEFT_OUT = frozenset({"providers", "models", "hooks", "services"})
"""Empty tables and arrays of tables: written out, they would forbid to add the first entry with a [header]."""


def ensure_default_file(share: str, path: str) -> None:
    """Make `path` exist: from `config.json` beside it (kept as `config.json.bak`), else with all defaults.

    A share directory that cannot be written is logged and otherwise ignored: the defaults hold without a file.

    Raises:
        ConfigError: the legacy file is there and unusable, or another program does not stop changing `path`.
    """
    legacy = os.path.join(share, "config.json")
    try:
        if os.path.isfile(legacy):
            _migrate(legacy, path)
        else:
            _create(path, _HEADER + toml_text(_defaults()))
    except OSError as error:
        _log.warning("Could not write the first configuration file %s: %s", path, error.strerror)


def toml_text(table: Mapping[str, Any]) -> str:
    """`table` as a TOML document; None values are left out, because TOML has no null."""
    return "\n".join(_table_lines(table, ())).lstrip("\n") + "\n"


def _migrate(legacy: str, path: str) -> None:
    raw = _legacy_content(legacy)
    _create(path, toml_text(raw))
    os.chmod(legacy, 0o600)
    os.replace(legacy, f"{legacy}.bak")
    _log.info("Migrated %s to %s", legacy, path)


def _legacy_content(legacy: str) -> dict[str, Any]:
    with open(legacy, encoding="utf-8-sig", errors="replace") as file:
        text = file.read()
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Invalid JSON in legacy configuration file: {error} ({legacy})") from None
    try:
        validated(raw)
    except ValueError as error:
        raise ConfigError(f"Invalid legacy configuration file: {error} ({legacy})") from None
    return raw


def _defaults() -> dict[str, Any]:
    spelled_out = Configuration().model_dump(exclude=set(_LEFT_OUT), exclude_none=True)
    del spelled_out["approval"]["rules"]
    return spelled_out


def _create(path: str, text: str) -> None:
    """Write `path` whole, readable for its owner only, unless somebody else created it meanwhile."""
    from kimi.infrastructure.config.private_file import (  # start-up time: the first start only
        create_private_file,
        sole_change,
    )

    with sole_change(path):
        create_private_file(path, text)


# --- a small TOML writer ---------------------------------------------------------------------------------------

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Plain values first: after the first [header] they would belong to that table."""
    for key, value in table.items():
        if value is not None and not _has_own_header(value):
            yield f"{_key(key)} = {_inline(value)}"
    for key, value in table.items():
        if _has_own_header(value):
            yield from _headed_lines(value, (*path, key))


def _headed_lines(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    name = ".".join(_key(part) for part in path)
    if isinstance(value, Mapping):
        yield f"\n[{name}]"
        yield from _table_lines(cast(Mapping[str, Any], value), path)
        return
    for entry in value:
        yield f"\n[[{name}]]"
        yield from _table_lines(entry, path)


def _has_own_header(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    entries = cast(list[Any], value) if isinstance(value, list) else []
    return bool(entries) and all(isinstance(entry, Mapping) for entry in entries)


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        pairs = cast(Mapping[str, Any], value)
        return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in pairs.items() if v is not None) + "}"
    if isinstance(value, (list, tuple)):
        entries = cast(Sequence[Any], value)
        return "[" + ", ".join(_inline(entry) for entry in entries if entry is not None) + "]"
    return _number(value)


def _number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(text := json.dumps(value), text)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's too, but for DEL; surrogates cannot be written at all."""
    writable = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(writable, ensure_ascii=False).replace("\x7f", "\\u007f")
