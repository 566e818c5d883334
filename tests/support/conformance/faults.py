"""Faults that a broken server could have, each one put between our server and the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from kimi.interfaces.conformance.connection import Connection, OpenConnection, Place
from kimi.interfaces.conformance.peer import dig
from kimi.interfaces.conformance.run import run_scenario
from kimi.interfaces.conformance.scenario import Protocol, Target
from kimi.interfaces.conformance.suites import list_scenarios
from tests.support.conformance.warm import BrokenConnection, Mutate, warm_server

Json: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Json], "Json | list[Json] | None"]
"""Change a message in place or return what takes its place: messages in order, None for the same message."""


def unchanged(line: bytes) -> list[bytes]:
    return [line]


def same_status(status: int) -> int:
    return status


@dataclass(frozen=True)
class Fault:
    """What is broken, the item that must notice it, and the scenario to run where several judge the item.

    The makers are called for each connection, so that a change may keep state.
    """

    name: str
    item: str
    outbound: Callable[[], Mutate] = lambda: unchanged
    inbound: Callable[[], Mutate] = lambda: unchanged
    status: Callable[[int], int] = same_status
    scenario: str | None = None

    def break_server(self, open_connection: OpenConnection) -> OpenConnection:
        """Return what opens connections with this fault."""

        async def start(place: Place, arguments: Sequence[str]) -> Connection:
            inner = await open_connection(place, arguments)
            return BrokenConnection(inner, self.outbound(), self.inbound(), self.status)

        return start


def each(change: Change) -> Callable[[], Mutate]:
    """Return the maker of a mutation that changes messages."""

    def mutate(line: bytes) -> list[bytes]:
        message: Json = json.loads(line)
        changed = change(message)
        messages: list[Json] = [message] if changed is None else changed if isinstance(changed, list) else [changed]
        return [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in messages]

    return lambda: mutate


def on_event(kind: str, change: Callable[[Json], Json | list[Json] | None]) -> Callable[[], Mutate]:
    """Return the maker of a mutation of the events or requests of a type; `change` gets the payload.

    It changes the payload in place, or returns a list of messages.
    """

    def apply(message: Json) -> Json | list[Json] | None:
        if "method" in message and message["params"]["type"] == kind:
            changed = change(message["params"]["payload"])
            return changed if isinstance(changed, list) else None
        return None

    return each(apply)


def without(kind: str, nth: int = 0) -> Callable[[], Mutate]:
    """Return the maker of a mutation that drops the events of a type; with `nth` only that one."""

    def make() -> Mutate:
        seen = 0

        def change(message: Json) -> list[Json] | None:
            nonlocal seen
            if message.get("params", {}).get("type") != kind:
                return None
            seen += 1
            return [] if nth in (0, seen) else None

        return each(change)()

    return make


def on_result(member: str, change: Callable[[Json], None]) -> Callable[[], Mutate]:
    """Return the maker of a mutation of the results that have a member."""

    def apply(message: Json) -> None:
        if dig(message, "result", member) is not None:
            change(message["result"])

    return each(apply)


def on_error(code: int, change: Callable[[Json], Json | list[Json] | None]) -> Callable[[], Mutate]:
    """Return the maker of a mutation of the messages with an error of this code."""

    def apply(message: Json) -> Json | list[Json] | None:
        return change(message) if message.get("error", {}).get("code") == code else None

    return each(apply)


def held_back(kind: str, until: str) -> Callable[[], Mutate]:
    """Return the maker of a mutation that lets events of a type come only after the next one of another.

    `until` is a type, or `response`.
    """

    def make() -> Mutate:
        held: list[Json] = []

        def change(message: Json) -> list[Json] | None:
            found = message["params"]["type"] if "method" in message else "response"
            if found == kind:
                held.append(message)
                return []
            if found == until and held:
                released = [message, *held]
                held.clear()
                return released
            return None

        return each(change)()

    return make


def set_member(**members: Any) -> Callable[[Json], None]:
    """Return a change that sets members."""

    def change(target: Json) -> None:
        target.update(members)

    return change


def drop_member(name: str) -> Callable[[Json], None]:
    """Return a change that removes a member."""

    def change(target: Json) -> None:
        target.pop(name, None)

    return change


def check_fault_is_found(protocol: Protocol, fault: Fault, *arguments: str) -> None:
    """Run the scenario of the fault's item against the broken server, and expect that the item fails."""
    found = [one for one in list_scenarios(protocol) if fault.item in one.items and fault.scenario in (None, one.name)]
    target = Target(protocol, fault.break_server(warm_server(*arguments)), timeout_s=1.2)

    async def run() -> dict[str, list[str]]:
        findings = (await run_scenario(found[0], target, stop_at=fault.item)).findings
        return {
            item: [one.reason for one in finding.failures] for item, finding in findings.items() if finding.failures
        }

    failed = anyio.run(run)
    assert fault.item in failed, json.dumps(failed, indent=1)
    assert not any("broke off" in reason for reason in failed[fault.item]), failed
