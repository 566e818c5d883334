"""Request headers: the User-Agent, the device headers and the headers that the user configures (runtime spec 3.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kimi.application.settings.flags import share_directory
from kimi.domain.errors import ConfigError

MAX_CLIENT_LENGTH = 200
VENDOR_DOMAINS = ("moonshot.ai", "moonshot.cn", "kimi.com")

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING_HEADERS = ("content-length", "transfer-encoding")
_UNPRINTABLE = re.compile(r"[^ -~]+")
_UNSAFE_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def to_printable_ascii(text: str) -> str:
    """Return `text` without the characters that are not printable ASCII."""
    return _UNPRINTABLE.sub("", text).strip()


def format_user_agent(version: str, client: str = "") -> str:
    """Return `KimiCLI/<version>`, followed by the client (its name and version) in parentheses.

    The client is reduced to printable ASCII and at most 200 characters (wire spec 3.1, W-51). It may already be in
    parentheses.
    """
    name = to_printable_ascii(client).removeprefix("(").removesuffix(")")[:MAX_CLIENT_LENGTH].strip()
    return f"KimiCLI/{version} ({name})" if name else f"KimiCLI/{version}"


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


def is_vendor_host(host: str) -> bool:
    """Whether `host` belongs to the vendor. Only those hosts receive the device headers (R-91)."""
    host = host.lower().rstrip(".")
    return any(host == domain or host.endswith(f".{domain}") for domain in VENDOR_DOMAINS)


@cache
def _describe_machine() -> tuple[str, str, str]:
    import platform

    model = " ".join((platform.system(), platform.release(), platform.machine()))
    return to_printable_ascii(platform.node()), to_printable_ascii(model), to_printable_ascii(platform.version())


def build_device_headers(version: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the vendor's headers about this program and device. The device id is stored in the share directory."""
    name, model, system = _describe_machine()
    return {
        "X-Msh-Platform": "kimi_cli",
        "X-Msh-Version": version,
        "X-Msh-Device-Name": name or "unknown",
        "X-Msh-Device-Model": model or "unknown",
        "X-Msh-Os-Version": system or "unknown",
        "X-Msh-Device-Id": _load_device_id(environ),
    }


def _load_device_id(environ: Mapping[str, str]) -> str:
    path = Path(share_directory(environ), "device_id")
    try:
        return to_printable_ascii(path.read_text("ascii", "ignore")) or _create_device_id(path)
    except OSError:
        return _create_device_id(path)


def _create_device_id(path: Path) -> str:
    """Return a new device id and store it if the disk can be written."""
    from uuid import uuid4

    device_id = uuid4().hex
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(device_id, "ascii")
    except OSError:
        return device_id
    return device_id
