"""Run the scenarios of a suite against a server."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kimi.interfaces.conformance.items import Item, list_items
from kimi.interfaces.conformance.ledger import (
    BROKEN_OFF,
    WRONG_SHAPE,
    Failure,
    FoundEnough,
    ItemFinding,
    Ledger,
    Mismatch,
    Outcome,
    describe,
    escape_controls,
)
from kimi.interfaces.conformance.model_server import ModelServer
from kimi.interfaces.conformance.scenario import WATCHED, Scenario, Stage, Target
from kimi.interfaces.conformance.suites import list_scenarios, probe


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What the suite says of an item; `note` says why it was not judged."""

    item: Item
    outcome: Outcome
    note: str = ""
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """The results of a run, and who was tested."""

    protocol: str
    version: str
    server: str
    results: tuple[ItemResult, ...]

    def count(self, outcome: Outcome) -> int:
        """Return how many items have this outcome."""
        return sum(result.outcome == outcome for result in self.results)


async def run_suite(
    target: Target,
    *,
    only: Iterable[str] = (),
    model: ModelServer | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> SuiteReport:
    """Run all scenarios, or those that judge one of `only`, and report on every item (of `only`)."""
    wanted = set(only)
    scenarios = [one for one in list_scenarios(target.protocol) if not wanted or wanted & set(one.items)]
    found = await probe_server(target, model)
    target = replace(target, version=found.version, parts=found.parts)
    findings: dict[str, ItemFinding] = {}
    lacking = {item.id for item in list_items(target.protocol) if _find_lack(item, target)}
    for number, one in enumerate(scenarios, start=1):
        if (one.needs_process and not target.has_process) or lacking.issuperset(one.items):
            continue
        tell(f"[{number}/{len(scenarios)}] {one.name.replace('_', ' ')}")
        ledger = await run_scenario(one, target, model)
        for item, finding in ledger.findings.items():
            known = findings.setdefault(item, ItemFinding())
            known.looks += finding.looks
            known.failures += finding.failures
    items = [item for item in list_items(target.protocol) if not wanted or item.id in wanted]
    results = tuple(_judge(item, findings.get(item.id), target) for item in items)
    return SuiteReport(target.protocol, escape_controls(found.shown_version), escape_controls(found.server), results)


@dataclass(frozen=True, slots=True)
class Probed:
    """What the server says of itself."""

    version: int
    shown_version: str
    server: str
    parts: frozenset[str]


async def probe_server(target: Target, model: ModelServer | None = None) -> Probed:
    """Shake hands once. Raises Mismatch if the server does not answer at all."""
    answers: list[Probed] = []

    async def act(stage: Stage) -> None:
        answers.append(Probed(*await probe(stage)))

    ledger = await run_scenario(
        Scenario("handshake", target.protocol, ("first",), act, False, "", (), 100_000), target, model
    )
    if not answers:
        failure = ledger.findings["first"].failures[0]
        reason = failure.reason.removeprefix(BROKEN_OFF)
        raise Mismatch("\n".join([f"The first handshake failed: {reason}.", *failure.traffic]))
    return answers[0]


async def run_scenario(
    one: Scenario, target: Target, model: ModelServer | None = None, stop_at: str | None = None
) -> Ledger:
    """Run a scenario in a home of its own, with a model of its own unless one is given; see `Ledger`."""
    ledger = Ledger(one.name, one.items, WATCHED if one.protocol == "wire" else (), stop_at)
    server = ModelServer() if model is None else model
    own = not server.base_url
    if own:
        await server.start()
    try:
        place = tempfile.TemporaryDirectory("", "kimi-conformance-", target.directory, ignore_cleanup_errors=True)
        with place as root:
            stage = Stage(target, ledger, server, Path(root).resolve())
            stage.home.prepare(one.config, one.capabilities, one.context_size)
            server.script()
            await _act(one, stage, ledger)
    finally:
        if own:
            await server.stop()
    return ledger


async def _act(one: Scenario, stage: Stage, ledger: Ledger) -> None:
    try:
        await asyncio.wait_for(one.act(stage), max(120, 12 * stage.target.timeout_s))
    except FoundEnough:
        pass
    except TimeoutError:
        ledger.break_off("it took too long")
    except (Mismatch, OSError, *WRONG_SHAPE) as error:
        ledger.break_off(describe(error))
    finally:
        await stage.close()


def _find_lack(item: Item, target: Target) -> str:
    """Say why an item does not apply to the server; nothing if it does."""
    if item.since > target.version:
        return f"came with version 1.{item.since}"
    if item.part and target.parts is not None and item.part not in target.parts:
        return f"the server does not advertise {item.part}"
    return ""


def _judge(item: Item, finding: ItemFinding | None, target: Target) -> ItemResult:
    if item.reason:
        return ItemResult(item, "unobservable", item.reason)
    if lack := _find_lack(item, target):
        return ItemResult(item, "lacking", lack)
    if finding is None or not (finding.looks or finding.failures):
        return ItemResult(item, "skipped", "needs a server that the kit starts, over stdio")
    failures: Sequence[Failure] = finding.failures
    return ItemResult(item, "failed" if failures else "passed", failures=tuple(failures))
