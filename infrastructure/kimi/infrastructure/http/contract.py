"""What both halves of the HTTP layer go by: its errors and its limits. `http` gives them to everybody else."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from kimi.domain.errors import ConfigError


class HttpError(Exception):
    """The connection could not be made, broke, or did not carry HTTP. The text names no secret."""


class HttpTimeout(HttpError):
    """No connection, or no data, in time."""


class PrivateAddressError(HttpError, OSError):
    """The name leads to an address that the layer must not connect to."""

    def __init__(self) -> None:
        super().__init__("the address is not public")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Seconds: to connect (name, TCP, proxy and TLS together), to send a request, without data, and to keep an idle
    connection. How long an answer goes on is not limited."""

    connect_s: float = 15.0
    send_s: float = 300.0
    read_s: float = 300.0
    idle_s: float = 30.0

    @property
    def head_s(self) -> float:
        """Until the head of the answer must be there."""
        return self.connect_s + self.send_s + self.read_s


def import_socks_library() -> None:
    """Import what SOCKS proxies need.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import_module("aiohttp_socks")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "The environment names a SOCKS proxy, which needs the extra 'socks': install kimi-wire[socks], or unset "
            "the variable (ALL_PROXY, HTTPS_PROXY or HTTP_PROXY)."
        ) from error
