"""What setup asks of the network: which models there are, and whether the chosen one answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Final

import anyio

from kimi.application.settings.flags import Flags
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.doctor_checks import check_endpoint
from kimi.interfaces.bootstrap import doctor as doctor_adapters
from kimi.interfaces.process.log import hide_secrets, mask_secrets, start_logging
from kimi.interfaces.process.terminal_escape import escape_line

MODELS_S: Final = 5.0
"""How long a server may take to list its models, in seconds."""


def list_offered_models(base_url: str, api_key: str, environ: Mapping[str, str]) -> list[str]:
    """The models that the server lists; none when it does not, or not in time."""
    return anyio.run(partial(doctor_adapters.list_offered_models, base_url, api_key, environ, MODELS_S))


def try_model(share: str, config_file: str | None, environ: Mapping[str, str]) -> str:
    """Ask the configured model one short question; gives a sentence about what came of it, without secrets."""
    from kimi.interfaces.bootstrap.opening import load_settings

    start_logging(share, debug=False)
    try:
        settings = load_settings(Flags(os.getcwd(), config_file=config_file), environ)
    except KimiError as error:
        return str(error)
    hide_secrets(settings.secret_values)
    found = anyio.run(check_endpoint, settings, environ)
    return mask_secrets(escape_line(f"{found.message} {found.advice}", 600))
