"""Reading a configuration file, and the words for what is wrong with one (runtime spec 2.6)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.schema import Configuration, validate_configuration
from kimi.infrastructure.config.text_file import read_text


def load_configuration_file(path: str) -> Configuration:
    """The configuration in a file. Raises ConfigError: it cannot be used."""
    return check_configuration(parse_configuration_text(read_configuration_text(path), path), path)


def is_json(path: str) -> bool:
    """Does the file hold JSON, by its name? Else it holds TOML."""
    return path.lower().endswith(".json")


def read_configuration_text(path: str, *, newline: str | None = None, missing: str | None = None) -> str:
    """The text of the file, `missing` if there is none; `newline` as for `open`.

    Raises ConfigError: it cannot be read, or it is missing and nothing is given for that.
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
    """What the text of the file says. Raises ConfigError: it is not of the form that its name promises."""
    form, load = ("JSON", load_json) if is_json(path) else ("TOML", tomllib.loads)
    try:
        return load(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Invalid {form} in configuration file {path}: {error}") from None


def check_configuration(raw: object, path: str) -> Configuration:
    """The configuration that was parsed. Raises ConfigError: something in it cannot be used."""
    try:
        return validate_configuration(raw)
    except ValueError as error:
        raise ConfigError(f"Invalid configuration file {path}: {error}") from None
