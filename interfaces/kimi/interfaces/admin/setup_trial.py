"""One short question to the model that `kimi setup` has just configured."""

from __future__ import annotations

import os
from collections.abc import Mapping

import anyio

from kimi.application.admin.doctor_checks import check_endpoint
from kimi.application.settings.flags import Flags
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES
from kimi.interfaces.bootstrap.admin import build_doctor_probes
from kimi.interfaces.process.log import hide_secrets, mask_secrets, start_logging
from kimi.interfaces.process.terminal_escape import escape_line


def try_model(share: str, config_file: str | None, environ: Mapping[str, str]) -> str:
    """Ask the configured model one short question; return a sentence about the outcome, without secrets."""
    from kimi.interfaces.bootstrap.start import load_settings

    start_logging(share, debug=False)
    try:
        settings = load_settings(Flags(os.getcwd(), config_file=config_file), environ)
    except KimiError as error:
        return str(error)
    hide_secrets(settings.secret_values)
    probes = build_doctor_probes(settings, environ)
    found = anyio.run(check_endpoint, settings.model, API_KEY_VARIABLES, probes)
    return mask_secrets(escape_line(f"{found.message} {found.advice}", 600))
