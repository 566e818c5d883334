"""The scenarios of each suite, and the first handshake."""

from __future__ import annotations

from kimi.interfaces.conformance.scenario import SCENARIOS, Protocol, Scenario, Stage


def list_scenarios(protocol: Protocol) -> list[Scenario]:
    """Return the scenarios of a suite, in the order in which they run."""
    if protocol == "wire":
        from kimi.interfaces.conformance.wire import (  # noqa: F401
            events,
            framing,
            handshake,
            hooks,
            lifetime,
            planning,
            prompts,
            recording,
            requests,
        )
    else:
        from kimi.interfaces.conformance.acp import (  # noqa: F401
            framing,
        )
    return [one for one in SCENARIOS if one.protocol == protocol]


async def probe(stage: Stage) -> tuple[int, str, str, frozenset[str]]:
    """Return the version as a number, the version and the server as they are shown, and its capabilities."""
    if stage.target.protocol == "wire":
        from kimi.interfaces.conformance.wire.client import probe_wire

        return await probe_wire(stage)
    from kimi.interfaces.conformance.acp.client import probe_acp

    return await probe_acp(stage)
