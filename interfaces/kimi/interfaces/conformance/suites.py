"""The scenarios of each suite, and the first handshake."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from kimi.interfaces.conformance.scenario import SCENARIOS, Protocol, Scenario, Stage

_MODULES: Final[dict[Protocol, tuple[str, ...]]] = {
    "wire": (
        "framing", "handshake", "prompts", "events", "requests", "hooks", "planning", "recording", "lifetime",
    ),
    "acp": ("framing", "handshake", "sessions", "prompts", "tools", "options"),
}  # fmt: skip
"""The modules with the scenarios of each suite, in the order in which they run."""


def list_scenarios(protocol: Protocol) -> list[Scenario]:
    """Return the scenarios of a suite, in the order in which they run."""
    for name in _MODULES[protocol]:
        import_module(f"kimi.interfaces.conformance.{protocol}.{name}")
    return [one for one in SCENARIOS if one.protocol == protocol]


async def probe(stage: Stage) -> tuple[int, str, str, frozenset[str]]:
    """Return the version as a number, the version and the server as they are shown, and its capabilities."""
    if stage.target.protocol == "wire":
        from kimi.interfaces.conformance.wire.client import probe_wire

        return await probe_wire(stage)
    from kimi.interfaces.conformance.acp.client import probe_acp

    return await probe_acp(stage)
