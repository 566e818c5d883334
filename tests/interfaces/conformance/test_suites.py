"""Our own servers pass every item of both suites, and every item is judged or says why not."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import anyio
import pytest

from kimi.interfaces.conformance.connection import run_with_files
from kimi.interfaces.conformance.items import list_all_items, list_items
from kimi.interfaces.conformance.model_server import ModelServer
from kimi.interfaces.conformance.run import probe_server, run_scenario
from kimi.interfaces.conformance.scenario import WATCHED, Protocol, Scenario, Target
from kimi.interfaces.conformance.suites import list_scenarios
from kimi.interfaces.schema.print_schema import format_schema
from tests.support.conformance.warm import warm_server
from tests.support.program.program import kimi_command

ROOT = Path(__file__).parents[3]
KIT = ROOT / "interfaces" / "kimi" / "interfaces" / "conformance"
PACKAGE = "kimi.interfaces.conformance"
PROTOCOLS: tuple[Protocol, ...] = ("wire", "acp")
ALL = [one for protocol in PROTOCOLS for one in list_scenarios(protocol)]


def target_of(protocol: Protocol) -> Target:
    arguments = ["--wire"] if protocol == "wire" else ["acp"]
    files = run_with_files([*kimi_command(), *arguments])
    return Target(protocol, warm_server(*arguments), timeout_s=30, run_with_files=files)


@pytest.mark.spec("R-405")
@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.protocol}-{one.name}")
def test_our_server_passes_the_scenario(one: Scenario) -> None:
    ledger = anyio.run(run_scenario, one, target_of(one.protocol), ModelServer())
    failures = {item: found.failures for item, found in ledger.findings.items() if found.failures}
    assert not failures
    unjudged = [item for item in one.items if not ledger.findings[item].looks]
    assert not unjudged


@pytest.mark.spec("R-406")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_item_is_judged_by_a_scenario_or_says_why_not(protocol: Protocol) -> None:
    judged = {item for one in list_scenarios(protocol) for item in one.items}
    if protocol == "wire":
        assert set(WATCHED) <= judged
    items = {item.id: item for item in list_items(protocol)}
    assert judged <= set(items)
    assert {item for item in items if not items[item].reason} == judged
    assert all(one.since <= 10 for one in items.values())


def test_the_items_are_those_of_the_specification() -> None:
    with (ROOT / "docs" / "spec" / "ids.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row[0][:2] in ("W-", "A-")]
    found = [(item.id, item.area, item.level, item.title) for item in list_all_items()]
    assert found == [(row[0], row[1].partition(":")[2], row[2], row[3]) for row in rows]


def test_the_page_says_of_each_unjudged_item_why() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    for item in list_all_items():
        assert (f"| {item.id} | {item.reason} |" in page) == bool(item.reason), item.id


def test_the_kit_imports_nothing_else_of_the_program() -> None:
    for path in KIT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            foreign = [one for one in names if one.startswith("kimi") and not one.startswith(f"{PACKAGE}")]
            assert not foreign, path


def test_the_kit_has_the_schema_of_the_messages() -> None:
    assert (KIT / "wire" / "messages.json").read_text(encoding="utf-8") == format_schema("messages", "1.10")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_first_handshake_tells_who_is_tested(protocol: Protocol) -> None:
    found = anyio.run(probe_server, target_of(protocol))
    assert found.server.startswith("Kimi Code CLI")
    assert found.shown_version == ("1.10" if protocol == "wire" else "1")
