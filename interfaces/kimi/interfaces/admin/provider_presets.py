"""Providers that `kimi setup` knows by name, out of the table of provider types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kimi.interfaces.bootstrap.models import list_key_variables, list_provider_presets

PRESETS: Final = list_provider_presets()
"""In the order in which they are offered."""

API_KEY_VARIABLES: Final[Mapping[str, str]] = list_key_variables()
"""Provider type -> the variable whose key is used, at each start, instead of the configured one (runtime spec 2.5)."""
