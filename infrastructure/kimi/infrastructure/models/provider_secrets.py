"""The secrets in a provider's settings, and how they are masked in texts (R-48)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kimi.application.settings.settings import ModelSettings

MASK = "***"

_MIN_SECRET_CHARS = 8
"""The least number of characters. Shorter values (`none`, `1`) occur in too many texts by chance."""

Mask: TypeAlias = Callable[[str], str]


def collect_provider_secrets(settings: ModelSettings) -> set[str]:
    """Return the key and the values of the configured headers.

    Of `Bearer KEY` only the key is returned, because a provider may repeat it alone.
    """
    return {settings.api_key.strip(), *(value.removeprefix("Bearer ") for value in settings.custom_headers.values())}


def make_mask(secrets: Iterable[str]) -> Mask:
    """Return a function that replaces every secret by `***`, also where it is escaped in JSON (arguments of calls).

    It replaces the longest secret first: one that is part of another would otherwise leave the rest of it visible.
    """
    forms = {
        form for secret in secrets if len(secret) >= _MIN_SECRET_CHARS for form in (secret, *_encode_json_forms(secret))
    }
    known = sorted(forms, key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in known:
            text = text.replace(secret, MASK)
        return text

    return mask


def _encode_json_forms(secret: str) -> tuple[str, str]:
    return json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
