"""Is the model to think?"""

from __future__ import annotations

from kimi.application.settings.settings import ModelSettings


def thinks(settings: ModelSettings) -> bool:
    """Is thinking on: because the model always thinks, or because it can and is asked to?"""
    if "always_thinking" in settings.capabilities:
        return True
    return settings.thinking is True and "thinking" in settings.capabilities
