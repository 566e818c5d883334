"""Scenarios: one process of the server, or a few, and many items judged on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kimi.interfaces.conformance.connection import Connection, OpenConnection, RunWithFiles, kill_leftovers
from kimi.interfaces.conformance.home import Home
from kimi.interfaces.conformance.ledger import Ledger
from kimi.interfaces.conformance.model_server import ModelServer
from kimi.interfaces.conformance.peer import Peer

WATCHED: Final = ("W-01", "W-19", "W-24", "W-89", "W-101")
"""Items of the wire that are judged on every line of every scenario."""

Protocol: TypeAlias = Literal["wire", "acp"]


@dataclass(frozen=True, slots=True)
class Target:
    """The server under test. `version` is the one that it speaks, `parts` the capabilities of an editor's agent."""

    protocol: Protocol
    open: OpenConnection
    has_process: bool = True
    timeout_s: float = 15.0
    version: int = 10
    parts: frozenset[str] | None = None
    run_with_files: RunWithFiles | None = None
    directory: Path | None = None
    """Where the scenarios have their directories, which a server may be started in; None for the usual place."""


class Stage:
    """What a scenario works with: the target, a home, the model, the ledger."""

    def __init__(self, target: Target, ledger: Ledger, model: ModelServer, root: Path) -> None:
        self.target = target
        self.model = model
        self.home = Home(root, model.base_url)
        self.ledger = ledger
        self.check = ledger.check
        self._peers: list[Peer] = []

    async def open(self, *arguments: str) -> Connection:
        """Start the server with more arguments."""
        return await self.target.open((self.home.work, self.home.full_environ()), arguments)

    def allow(self, seconds: float) -> float:
        """Return a limit in seconds; longer where the user grants more time to each message."""
        return seconds * max(1.0, self.target.timeout_s / 15)

    def adopt(self, peer: Peer) -> None:
        """Show the traffic of this peer with failures from now on, and close it at the end."""
        self._peers.append(peer)
        self.ledger.show_traffic = peer.show_traffic
        self.ledger.recover = peer.recover

    async def close(self) -> None:
        """End all processes, also those that the server has left behind."""
        for peer in self._peers:
            await peer.close()
        if self.target.has_process:
            await kill_leftovers(self.home.root)


Act: TypeAlias = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is done, and the items that it judges. `needs_process`: it starts, ends or configures the server itself."""

    name: str
    protocol: Protocol
    items: tuple[str, ...]
    act: Act
    needs_process: bool
    config: str
    capabilities: tuple[str, ...]
    context_size: int


SCENARIOS: list[Scenario] = []
"""All scenarios of the modules that were imported, in their order."""


def scenario(
    protocol: Protocol,
    items: str,
    *,
    needs_process: bool = False,
    config: str = "",
    capabilities: Sequence[str] = (),
    context_size: int = 100_000,
) -> Callable[[Act], Act]:
    """Add the decorated function as a scenario; `items` are ids with blanks between them."""

    def add(act: Act) -> Act:
        name = getattr(act, "__name__", "scenario")
        ids = tuple(items.split())
        configured = bool(config or capabilities or context_size != 100_000)
        SCENARIOS.append(
            Scenario(name, protocol, ids, act, needs_process or configured, config, tuple(capabilities), context_size)
        )
        return act

    return add
