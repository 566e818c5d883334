"""Who may use the server: the token, the Host and Origin of a request, and what every answer says to browsers."""

from __future__ import annotations

import re
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

MAX_WRONG_TOKENS: Final = 20
"""How many wrong tokens are answered in `WRONG_TOKEN_PERIOD_S`; further ones get another status at once."""

WRONG_TOKEN_PERIOD_S: Final = 60.0

SHELL_STYLE: Final = "sha256-wfK3IQtNYygwKK0rEcGgDTrSPIzCTdP/O0TBM8ACjMk="
"""The digest of the style that stands in index.html, the only one that may: the first paint waits for no file."""

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src 'self'; style-src 'self' '{SHELL_STYLE}'; img-src 'self' data: blob:; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every answer carries, errors included."""

Credential: TypeAlias = Literal["cookie", "bearer"]
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def make_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


@dataclass
class AccessRules:
    """The rules of a server that is bound to the address `host`.

    `names` are host names by which it is reached beside loopback ones: those of a proxy or a private network.
    """

    token: str
    host: str
    names: frozenset[str] = frozenset()
    _wrong_tokens: deque[float] = field(default_factory=deque[float])

    def allows_host(self, header: str | None) -> bool:
        """Whether a request may have this Host.

        A page of another site can make its own name lead here, and then reads what its browser sends here; addresses
        it cannot: so a name must be known.
        """
        name = _split_host(header)
        if name is None:
            return False
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not is_loopback(self.host)

    def allows_origin(self, request: BaseRequest, *, is_required: bool) -> bool:
        """Whether a request comes from our own page, or from a program, which names no origin."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("Origin")
        if origin is None:
            return not is_required
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        default = _DEFAULT_PORTS.get(parts.scheme)
        if default is None:
            return False
        host = (request.headers.get("Host") or "").lower()
        return parts.netloc.lower().removesuffix(default) == host.removesuffix(default)

    def find_credential(self, request: BaseRequest) -> Credential | None:
        """Return what shows that a request may be answered: the cookie of a browser or the header of a program."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return "bearer" if self.is_token(given.strip()) else None
        given = request.cookies.get(name_cookie(request))
        return "cookie" if given is not None and self.is_token(given) else None

    def is_token(self, given: str) -> bool:
        """Whether this is the token; the time of the answer does not depend on where they differ."""
        if secrets.compare_digest(given.encode("utf-8", "surrogateescape"), self.token.encode()):
            return True
        now = time.monotonic()
        self._wrong_tokens.append(now)
        while len(self._wrong_tokens) > MAX_WRONG_TOKENS + 1 or now - self._wrong_tokens[0] > WRONG_TOKEN_PERIOD_S:
            self._wrong_tokens.popleft()
        return False

    @property
    def is_guessed_at(self) -> bool:
        """Whether too many wrong tokens have come lately. The right one is accepted all the same."""
        return len(self._wrong_tokens) > MAX_WRONG_TOKENS and (
            time.monotonic() - self._wrong_tokens[0] <= WRONG_TOKEN_PERIOD_S
        )


def name_cookie(request: BaseRequest) -> str:
    """Return the name of the cookie: a browser sends those of all ports of a host, and each may be another server.

    The port is the one that the browser sees, not ours: tunnels lead the same port of several machines to several here.
    """
    port = urlsplit(f"//{request.headers['Host']}").port
    return "kimi_web" if port is None else f"kimi_web_{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def normalise_names(names: Iterable[str]) -> frozenset[str]:
    """Return host names and addresses as browsers send them. Raises ValueError with the first that is neither."""
    return frozenset(map(_normalise_name, names))


def _normalise_name(name: str) -> str:
    bare = name.strip().lower().rstrip(".").removeprefix("[").removesuffix("]")
    try:
        return ip_address(bare).compressed
    except ValueError:
        pass
    try:
        encoded = bare.encode("idna").decode()
    except UnicodeError:
        encoded = ""
    if not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", encoded):
        raise ValueError(name)
    return encoded


def _split_host(header: str | None) -> str | None:
    """Return the host of a Host header without its port; None if it is none."""
    if not header or header != header.strip() or any(char in header for char in "/\\@?#, "):
        return None
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises for a wrong one
        return (parts.hostname or "").rstrip(".") or None
    except ValueError:
        return None
