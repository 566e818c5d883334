"""What of a provider's settings is secret, and texts without it (R-48)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from kimi.application.settings import ModelSettings

MASK = "***"

_SHORTEST = 8
"""Characters; what is shorter (`none`, `1`) stands in too many texts by chance."""

Mask: TypeAlias = Callable[[str], str]


def provider_secrets(settings: ModelSettings) -> set[str]:
    """The key and the values of the configured headers; of `Bearer KEY` the key, which may be repeated alone."""
    return {settings.api_key.strip(), *(value.removeprefix("Bearer ") for value in settings.custom_headers.values())}


def masking(secrets: Iterable[str]) -> Mask:
    """A function that puts `***` in the place of every secret; the longest first, so that one that is part of another
    leaves nothing behind."""
    known = sorted((secret for secret in secrets if len(secret) >= _SHORTEST), key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in known:
            text = text.replace(secret, MASK)
        return text

    return mask
