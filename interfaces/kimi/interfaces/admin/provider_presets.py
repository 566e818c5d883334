"""The providers that `kimi setup` knows by name, from the table of provider types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kimi.interfaces.bootstrap.models import list_key_variables, list_provider_presets

PRESETS: Final = list_provider_presets()
"""In the order in which they are offered."""

API_KEY_VARIABLES: Final[Mapping[str, str]] = list_key_variables()
"""By provider type, the variable whose key replaces the configured one at each start (runtime spec 2.5)."""
