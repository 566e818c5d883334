"""A resolver that checks addresses (imports aiohttp).

A name is resolved once and the connection goes to the checked address, so a name server that answers differently the
second time (DNS rebinding) cannot lead it elsewhere.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from kimi.infrastructure.http.contract import PrivateAddressError


class FilteringResolver(AbstractResolver):
    """Resolves names with the system's resolver, or with another one.

    A name is refused when any one of its addresses is forbidden, even if others are allowed.
    """

    def __init__(self, is_allowed_address: Callable[[str], bool], resolver: AbstractResolver | None = None) -> None:
        self._is_allowed_address = is_allowed_address
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of `host`. Raises PrivateAddressError, or OSError for a name without addresses."""
        found = await self._resolver.resolve(host, port, family)
        if not all(self._is_allowed_address(one["host"]) for one in found):
            raise PrivateAddressError
        return found

    async def close(self) -> None:
        """Do nothing: the resolver holds no resources."""
