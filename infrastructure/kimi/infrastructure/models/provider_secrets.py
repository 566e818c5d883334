"""What of a provider's settings is secret, and texts without it (R-48)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kimi.application.settings.settings import ModelSettings

MASK = "***"

_MIN_SECRET_CHARS = 8
"""Characters; what is shorter (`none`, `1`) stands in too many texts by chance."""

Mask: TypeAlias = Callable[[str], str]


def collect_provider_secrets(settings: ModelSettings) -> set[str]:
    """The key and the values of the configured headers; of `Bearer KEY` the key, which may be repeated alone."""
    return {settings.api_key.strip(), *(value.removeprefix("Bearer ") for value in settings.custom_headers.values())}


def make_mask(secrets: Iterable[str]) -> Mask:
    """A function that puts `***` in the place of every secret, also of one inside of JSON (arguments of calls); the
    longest first, so that one that is part of another leaves nothing behind."""
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
