"""Providers that `kimi setup` knows by name, out of the table of provider types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kimi.application.settings.settings import ProviderPreset
from kimi.interfaces.bootstrap.models import list_key_variables, list_provider_presets

PRESETS: Final = list_provider_presets()
"""In the order in which they are offered."""

API_KEY_VARIABLES: Final[Mapping[str, str]] = list_key_variables()
"""Provider type -> the variable whose key is used, at each start, instead of the configured one (runtime spec 2.5)."""

PLACEHOLDER_KEY: Final = "none"
"""What stands for the key of a server that wants none: some refuse requests without any."""


def find_preset(name: str) -> ProviderPreset | None:
    """The preset with this name."""
    return next((preset for preset in PRESETS if preset.name == name), None)
