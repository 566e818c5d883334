"""The errors and limits of the HTTP client. Other packages import them from `http.client`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from kimi.domain.errors import ConfigError


class HttpError(Exception):
    """The connection failed, broke, or did not carry HTTP. The text contains no secret."""


class HttpTimeout(HttpError):
    """No connection was made, or no data arrived, in time."""


class PrivateAddressError(HttpError, OSError):
    """The host resolves to an address that the client must not connect to."""

    def __init__(self) -> None:
        super().__init__("the address is not public")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Timeouts in seconds.

    `connect_s` covers name resolution, TCP, proxy and TLS together; `send_s` sending the request; `read_s` the time
    without data; `idle_s` how long an idle connection is kept. The total length of a response is not limited.
    """

    connect_s: float = 15.0
    send_s: float = 300.0
    read_s: float = 300.0
    idle_s: float = 30.0

    @property
    def head_s(self) -> float:
        """The time until the head of the response must have arrived."""
        return self.connect_s + self.send_s + self.read_s


def import_socks_library() -> None:
    """Import the library for SOCKS proxies.

    Raises:
        ConfigError: the library is not installed.
    """
    try:
        import_module("aiohttp_socks")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "The environment names a SOCKS proxy, but the library aiohttp-socks is missing: install it, or unset "
            "the variable (ALL_PROXY, HTTPS_PROXY or HTTP_PROXY)."
        ) from error
