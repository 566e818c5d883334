"""Names are resolved once, and the connection goes to the very address that was judged. Imports aiohttp."""

from __future__ import annotations

import socket
from collections.abc import Callable

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from kimi.infrastructure.http.contract import PrivateAddressError


class FilteringResolver(AbstractResolver):
    """Resolves names by the system, or by another resolver. A name with one address that is not `reachable` is
    refused, whatever else it has.
    """

    def __init__(self, is_allowed_address: Callable[[str], bool], resolver: AbstractResolver | None = None) -> None:
        self._is_allowed_address = is_allowed_address
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises PrivateAddress, and OSError for a name without addresses."""
        found = await self._resolver.resolve(host, port, family)
        if not all(self._is_allowed_address(one["host"]) for one in found):
            raise PrivateAddressError
        return found

    async def close(self) -> None:
        """Nothing is held."""
