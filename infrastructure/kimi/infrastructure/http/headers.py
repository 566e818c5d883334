"""Request headers: the User-Agent and the headers that the user configures (runtime spec 3.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kimi.domain.errors import ConfigError

MAX_CLIENT_LENGTH = 200
PRODUCT = "kimi-wire"
"""The name by which this program calls itself to every server."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING_HEADERS = ("content-length", "transfer-encoding")
_UNPRINTABLE = re.compile(r"[^ -~]+")
_UNSAFE_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def to_printable_ascii(text: str) -> str:
    """Return `text` without the characters that are not printable ASCII."""
    return _UNPRINTABLE.sub("", text).strip()


def format_user_agent(version: str, client: str = "") -> str:
    """Return `kimi-wire/<version>`, followed by the client (its name and version) in parentheses.

    The client is reduced to printable ASCII and at most 200 characters (wire spec 3.1, W-51). It may already be in
    parentheses.
    """
    name = to_printable_ascii(client).removeprefix("(").removesuffix(")")[:MAX_CLIENT_LENGTH].strip()
    return f"{PRODUCT}/{version} ({name})" if name else f"{PRODUCT}/{version}"


def validate_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the configured headers unchanged.

    Raises:
        ConfigError: a name or a value would corrupt the request. The text omits the value, which may be a secret.
    """
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(f"custom_headers: {name!r} cannot be the name of an HTTP header.")
        if name.lower() in _FRAMING_HEADERS:
            raise ConfigError(f"custom_headers: {name} follows from the body of each request; remove it.")
        if _UNSAFE_VALUE.search(value):
            raise ConfigError(f"custom_headers: the value of {name} must not contain control characters.")
    return dict(headers)


def merge_headers(*layers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Merge several sets of headers. A later header replaces an earlier one of the same name, regardless of case."""
    by_name = {name.lower(): (name, value) for layer in layers for name, value in layer.items()}
    return list(by_name.values())
