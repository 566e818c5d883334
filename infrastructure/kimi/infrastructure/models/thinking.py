"""Whether a model is to think."""

from __future__ import annotations

from kimi.application.settings.settings import ModelSettings


def thinks(settings: ModelSettings) -> bool:
    """Whether thinking is on: the model always thinks, or it can think and the settings ask for it."""
    if "always_thinking" in settings.capabilities:
        return True
    return settings.thinking is True and "thinking" in settings.capabilities
