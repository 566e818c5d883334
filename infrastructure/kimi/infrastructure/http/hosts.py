"""Where a URL leads, as the HTTP library understands it (imports yarl)."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from yarl import URL

from kimi.domain.errors import ConfigError


class ParsedAddress(NamedTuple):
    """The host that is connected to, and the URL in the form in which it is sent: printable ASCII.

    The host is in lower case, in the ASCII form of international names and without a dot at the end; an IPv6 address is
    in brackets. It has its port, unless that is the usual one of the scheme.
    """

    host: str
    url: str


def parse_address(url: str) -> ParsedAddress:
    """Parse an http(s) URL. Another parser may take other characters for the end of the host.

    Raises:
        ConfigError: the library cannot use the URL.
    """
    parsed = URL()
    host = sent = ""
    with suppress(ValueError):
        parsed = URL(url)
        host, sent = (parsed.raw_host or "").lower().rstrip("."), str(parsed)
    if not host or not (sent.isascii() and sent.isprintable()):
        raise ConfigError("The address has no host that can be connected to.")
    host = f"[{host}]" if ":" in host else host
    return ParsedAddress(host if parsed.is_default_port() else f"{host}:{parsed.port}", sent)
