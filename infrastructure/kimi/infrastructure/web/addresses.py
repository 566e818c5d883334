"""Decides which addresses are public: a URL from the model must not reach into a private network."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_CLOUD_SERVICE_NETWORKS = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))
"""Addresses that count as public, but where cloud machines reach the services of their host (Oracle, Azure)."""

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


def is_public(address: str) -> bool:
    """Return whether this address can only be a public one. False if it is not an address.

    IPv6 addresses that embed an IPv4 address are judged by that one.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and (inner := _find_embedded_ipv4(parsed)) is not None:
        return _is_public_ip(inner)
    return _is_public_ip(parsed)


def is_ip_literal(host: str) -> bool:
    """Return whether the host of a URL is an address and not a name."""
    try:
        ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _is_public_ip(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address.is_site_local:  # used by private networks before fd00::/8
        return False
    if any(address in network for network in _CLOUD_SERVICE_NETWORKS):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _find_embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
