"""The provider server in a thread, for tests that are not asynchronous."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from anyio.from_thread import start_blocking_portal

from tests.support.providers.provider_server import ProviderServer, Reply, provider


@contextmanager
def loopback(*replies: Reply) -> Generator[ProviderServer, None, None]:
    """Run the server of `tests.support.providers.provider_server` in a thread while the context is open."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(provider(replies)) as server,
    ):
        yield server
