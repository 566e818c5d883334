"""`kimi setup --catalogue`: take data of models from a file, and say what was taken (runtime spec 3.10)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from kimi.application.admin.model_catalogue import ModelImport, plan_import
from kimi.application.admin.setup import SetupError
from kimi.application.settings.flags import share_directory
from kimi.domain.errors import KimiError
from kimi.domain.turn import ModelPrices
from kimi.interfaces.bootstrap.admin import build_configuration_file
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line

MAX_CATALOGUE_BYTES: Final = 64 * 1024 * 1024


def import_model_data(path: str, config_file: str | None, environ: Mapping[str, str] | None = None) -> list[str]:
    """Write what the catalogue at `path` knows of the configured models; return a line for each of them.

    Raises KimiError: the file cannot be read or is no catalogue, or no model is configured; nothing has changed then.
    """
    configuration = build_configuration_file(share_directory(os.environ if environ is None else environ), config_file)
    models = configuration.read().described
    if not models:
        raise SetupError("No models are configured yet: run 'kimi setup' first.")
    imports = plan_import(_read_file(path), models)
    changes = {keys: value for one in imports for keys, value in one.changes.items()}
    if changes:
        configuration.change(changes)
    lines = [_describe_import(one) for one in imports]
    return [*lines, f"Written to {configuration.path}." if changes else "Nothing was changed."]


def run_import(path: str, config_file: str | None, environ: Mapping[str, str] | None = None) -> int:
    """Import model data and print what was taken; return the exit status."""
    try:
        for line in import_model_data(path, config_file, environ):
            print(line)
    except KimiError as error:
        write_stderr(f"{escape_line(str(error), limit=2000)}\n")
        return 1
    return 0


def _read_file(path: str) -> object:
    try:
        if os.path.getsize(path) > MAX_CATALOGUE_BYTES:
            raise SetupError(f"The catalogue {path} has more than {MAX_CATALOGUE_BYTES // 1024 // 1024} MiB.")
        with open(path, encoding="utf-8-sig") as file:
            return json.load(file)
    except OSError as error:
        raise SetupError(f"The catalogue {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise SetupError(f"The catalogue {path} is not JSON.") from None


def _describe_import(one: ModelImport) -> str:
    name = escape_line(one.alias)
    if one.data is None:
        return f"{name}: the catalogue does not know this model."
    unclear = "; it does not say which prices hold for its provider" if one.has_unclear_prices else ""
    if not one.changes:
        return f"{name}: nothing new{unclear}."
    keys = {path[2] for path in one.changes}
    words = [
        f"context size {one.data.context_size}" if "max_context_size" in keys else "",
        f"capabilities {', '.join(one.data.capabilities)}" if "capabilities" in keys else "",
        _describe_prices(one.data.prices) if "prices" in keys and one.data.prices is not None else "",
    ]
    return f"{name}: {'; '.join(filter(None, words))}{unclear}."


def _describe_prices(prices: ModelPrices) -> str:
    limit = f", up to {prices.max_input} tokens of input" if prices.max_input is not None else ""
    return f"prices {prices.input:g} in and {prices.output:g} out ({prices.currency} for a million tokens{limit})"
