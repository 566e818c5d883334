"""Proxies: which one the environment names for an address, and how a tunnel through it is made.

Environment: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, lower case first (runtime spec 2.5).
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from kimi.domain.errors import ConfigError

_SOCKS_REPLIES = {
    1: "general failure",
    2: "not allowed",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live exceeded",
    7: "command not supported",
    8: "address type not supported",
}


class ProxyRefused(OSError):
    """The proxy answered, but made no tunnel."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is and how it is spoken to. The password stays out of `repr`-based logs by not being logged."""

    kind: Literal["http", "https", "socks5"]
    host: str
    port: int
    user: str | None = None
    password: str = ""

    @property
    def authorization(self) -> str | None:
        """The value of `Proxy-Authorization`, if the proxy's URL names a user."""
        if self.user is None:
            return None
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


def parse_proxy(url: str) -> Proxy:
    """A proxy URL; `socks://` means `socks5://`, no scheme means `http://`.

    Raises:
        ConfigError: the scheme is not supported or the URL is malformed. The URL is not shown: it may hold a
            password.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    kind = {"socks": "socks5", "socks5h": "socks5"}.get(parts.scheme, parts.scheme)
    if kind not in ("http", "https", "socks5") or not host:
        raise ConfigError("The proxy in the environment must be an http://, https:// or socks5:// URL with a host.")
    user = unquote(parts.username) if parts.username is not None else None
    default = {"http": 80, "https": 443, "socks5": 1080}[kind]
    return Proxy(kind, host, port or default, user, unquote(parts.password or ""))


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for requests to `scheme://host:port`, or None for a direct connection."""
    url = _variable(f"{scheme}_proxy", environ) or _variable("all_proxy", environ)
    if not url or _bypassed(host, port, _variable("no_proxy", environ)):
        return None
    return parse_proxy(url)


def _variable(name: str, environ: Mapping[str, str]) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Does `no_proxy` (comma separated: `*`, names with their subdomains, `name:port`, addresses, networks) match?"""
    return any(_matches(entry.strip().lower(), host.lower(), port) for entry in no_proxy.split(","))


def _matches(entry: str, host: str, port: int) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(host, entry)
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and ":" not in name:
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*").lstrip(".")
    return host == entry or host.endswith(f".{entry}")


def _in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


async def open_tunnel(
    proxy: Proxy, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Ask the proxy at the other end of the streams for a connection to `host:port`.

    Raises:
        ProxyRefused: the proxy said no, or something that cannot be understood.
        asyncio.IncompleteReadError: it closed the connection.
    """
    if proxy.kind == "socks5":
        await _socks5(proxy, host, port, reader, writer)
    else:
        await _connect(proxy, host, port, reader, writer)


async def _connect(
    proxy: Proxy, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    auth = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{auth}\r\n".encode())
    await writer.drain()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        head = b""
    words = head.split(b"\r\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or words[1][:1] != b"2":
        said = b" ".join(words[1:]).decode("latin-1") or "nothing that is HTTP"
        raise ProxyRefused(f"the proxy answered: {said}")


async def _socks5(
    proxy: Proxy, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """RFC 1928 and 1929. The name goes to the proxy, which resolves it."""
    writer.write(b"\x05\x01\x00" if proxy.user is None else b"\x05\x02\x00\x02")
    version, method = await reader.readexactly(2)
    if version != 5 or method not in (0, 2) or (method == 2 and proxy.user is None):
        raise ProxyRefused("the SOCKS proxy wants a kind of login that is not supported")
    if method == 2:
        writer.write(b"\x01" + _counted(proxy.user or "") + _counted(proxy.password))
        if (await reader.readexactly(2))[1] != 0:
            raise ProxyRefused("the SOCKS proxy refused the user or the password")
    writer.write(b"\x05\x01\x00\x03" + _counted(host) + port.to_bytes(2, "big"))
    _, reply, _, kind = await reader.readexactly(4)
    if reply != 0:
        raise ProxyRefused(f"the SOCKS proxy answered: {_SOCKS_REPLIES.get(reply, f'error {reply}')}")
    length = (await reader.readexactly(1))[0] if kind == 3 else 16 if kind == 4 else 4
    await reader.readexactly(length + 2)


def _counted(text: str) -> bytes:
    """`text` with its length in one byte in front."""
    data = text.encode()
    if len(data) > 255:
        raise ProxyRefused("a name for the SOCKS proxy is longer than 255 bytes")
    return bytes([len(data)]) + data
