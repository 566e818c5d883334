"""The choice of a proxy by the environment.

The variables are `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`; lower case takes precedence
(runtime spec 2.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from kimi.domain.errors import ConfigError

_SCHEMES = {
    "http": "http",
    "https": "https",
    "socks": "socks5",
    "socks5": "socks5",
    "socks5h": "socks5",
    "socks4": "socks4",
    "socks4a": "socks4",
}
"""The accepted schemes of a proxy URL, mapped to ours."""

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks4": 1080}


def find_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for requests to `url`, or None. Its scheme is http, https, socks5 or socks4.

    Raises:
        ConfigError: the environment names a proxy that cannot be used.
    """
    target = urlsplit(url)
    proxy = _read_variable(f"{target.scheme}_proxy", environ) or _read_variable("all_proxy", environ)
    if not proxy or _is_bypassed(target, _read_variable("no_proxy", environ)):
        return None
    return normalize_proxy_url(proxy)


def is_socks(proxy: str) -> bool:
    """Whether `proxy` is a SOCKS proxy, which needs an extra library."""
    return proxy.startswith("socks")


def normalize_proxy_url(proxy: str) -> str:
    """Return the URL of a proxy with one of our schemes and a port. A URL without a scheme is an http proxy.

    Raises:
        ConfigError: the scheme is unknown or the host is missing. The text omits the URL, which may hold a password.
    """
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        scheme, host, port = _SCHEMES.get(parts.scheme), parts.hostname, parts.port
    except ValueError:
        raise ConfigError(_UNUSABLE) from None
    if scheme is None or not host:
        raise ConfigError(_UNUSABLE)
    address = (
        parts.netloc.removesuffix(":") if port is not None else f"{parts.netloc.removesuffix(':')}:{_PORTS[scheme]}"
    )
    return f"{scheme}://{address}"


_UNUSABLE = "The proxy in the environment must be an http://, https://, socks4:// or socks5:// URL with a host."


def _read_variable(name: str, environ: Mapping[str, str]) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _is_bypassed(target: SplitResult, no_proxy: str) -> bool:
    """Whether an entry of `no_proxy` matches the target.

    Entries are separated by commas: `*`, a name (with its subdomains), `name:port`, an address or a network.
    """
    host, port = target.hostname or "", target.port or _PORTS.get(target.scheme)
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return any(entry and _matches(entry, host, f"{host}:{port}") for entry in entries)


def _matches(entry: str, host: str, host_and_port: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_in_network(host, entry)
    name = entry.strip("[]").removeprefix("*").lstrip(".")
    return name in (host, host_and_port) or host.endswith(f".{name}") or host_and_port.endswith(f".{name}")


def _is_in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
