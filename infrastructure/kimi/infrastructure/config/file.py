"""Reads a configuration file and reports what is wrong with it (runtime spec 2.6)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.schema import Configuration, validate_configuration
from kimi.infrastructure.config.text_file import read_text


def load_configuration_file(path: str) -> Configuration:
    """Load the configuration in a file. Raises ConfigError if it cannot be used."""
    return check_configuration(parse_configuration_text(read_configuration_text(path), path), path)


def is_json(path: str) -> bool:
    """Return whether the file holds JSON, by its name; otherwise it holds TOML."""
    return path.lower().endswith(".json")


def read_configuration_text(path: str, *, newline: str | None = None, missing: str | None = None) -> str:
    """Return the text of the file, or `missing` if there is none; `newline` as for `open`.

    Raises ConfigError if the file cannot be read, or if it is missing and `missing` is None.
    """
    try:
        return read_text(path, newline)
    except UnicodeDecodeError as error:
        raise ConfigError(f"Invalid configuration file {path}: byte {error.start} is not UTF-8 text") from None
    except OSError as error:
        if missing is not None and isinstance(error, FileNotFoundError):
            return missing
        raise ConfigError(f"Cannot read configuration file {path}: {error.strerror}") from None


def parse_configuration_text(text: str, path: str, load_json: Callable[[str], Any] = json.loads) -> Any:
    """Parse the text of the file. Raises ConfigError if it does not have the format that its name says."""
    form, load = ("JSON", load_json) if is_json(path) else ("TOML", tomllib.loads)
    try:
        return load(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Invalid {form} in configuration file {path}: {error}") from None


def check_configuration(raw: object, path: str) -> Configuration:
    """Validate a parsed configuration. Raises ConfigError if something in it cannot be used."""
    try:
        return validate_configuration(raw)
    except ValueError as error:
        raise ConfigError(f"Invalid configuration file {path}: {error}") from None
