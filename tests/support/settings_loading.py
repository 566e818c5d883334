"""Load settings from text or from a share directory, as a process does; a configuration with one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.infrastructure.config.settings_files import load_settings

SECRET = "sk-1234567890"
PROVIDER: dict[str, Any] = {"type": "kimi", "base_url": "http://127.0.0.1:1/v1", "api_key": SECRET}
MODEL: dict[str, Any] = {"provider": "p", "model": "m-1", "max_context_size": 1000}


def one_model(*, provider: dict[str, Any] | None = None, model: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a configuration with the model `m` of the provider `p`, which is the default."""
    return {
        "default_model": "m",
        "providers": {"p": {**PROVIDER, **(provider or {})}},
        "models": {"m": {**MODEL, **(model or {})}},
    }


def load(config: dict[str, Any] | str | None = None, environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    """Return the settings of a process with this `--config`, environment and flags; no file is used."""
    text = json.dumps(config) if isinstance(config, dict) else config or "{}"
    return load_settings(Flags(work_dir="/tmp", config=text, **flags), environ or {"KIMI_SHARE_DIR": "/nonexistent"})


def load_share(share: Path, environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    """Return the settings of a process with this share directory."""
    return load_settings(Flags(work_dir="/tmp", **flags), {"KIMI_SHARE_DIR": str(share), **(environ or {})})
