"""A run's report: as text, as JSON, as JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree

from kimi.interfaces.conformance.ledger import Outcome
from kimi.interfaces.conformance.run import ItemResult, SuiteReport

_WORDS: Final[dict[Outcome, str]] = {
    "passed": "passed",
    "failed": "FAILED",
    "lacking": "lacking in what the server speaks",
    "unobservable": "not to be judged from outside",
    "skipped": "skipped",
}


def format_text(report: SuiteReport, *, verbose: bool) -> str:
    """Return the report for people: the failures with their traffic, and how many items have which outcome."""
    return "\n".join([*_format_lines(report, verbose), ""])


def _format_lines(report: SuiteReport, verbose: bool) -> Iterator[str]:
    yield f"Suite {report.protocol}, version {report.version}, {report.server}"
    for area, results in groupby(report.results, key=lambda result: result.item.area):
        listed = list(results)
        passed = sum(result.outcome == "passed" for result in listed)
        yield f"  {area}: {passed} of {len(listed)}"
        for result in listed:
            if verbose or result.outcome in ("failed", "lacking", "skipped"):
                yield from _format_result(result)
    yield ", ".join(f"{report.count(outcome)} {word}" for outcome, word in _WORDS.items() if report.count(outcome))


def _format_result(result: ItemResult) -> Iterator[str]:
    note = f" ({result.note})" if result.note else ""
    yield f"    {result.item.id} {_WORDS[result.outcome]}{note}: {result.item.title}"
    for failure in result.failures:
        yield f"        {failure.scenario.replace('_', ' ')}: {failure.reason}"
        yield from (f"            {line}" for line in failure.traffic)


def format_json(report: SuiteReport) -> bytes:
    """Return the report as a JSON object, in UTF-8."""
    items = [_describe(result) for result in report.results]
    counts = {outcome: report.count(outcome) for outcome in _WORDS}
    head = {"protocol": report.protocol, "version": report.version, "server": report.server}
    text = json.dumps({**head, "counts": counts, "items": items}, indent=1, ensure_ascii=False)
    return text.encode() + b"\n"


def _describe(result: ItemResult) -> dict[str, Any]:
    item = result.item
    failures = [
        {"scenario": failure.scenario, "reason": failure.reason, "traffic": failure.traffic}
        for failure in result.failures
    ]
    described = {"id": item.id, "area": item.area, "level": item.level, "title": item.title, "outcome": result.outcome}
    return described | ({"note": result.note} if result.note else {}) | ({"failures": failures} if failures else {})


def format_junit(report: SuiteReport) -> bytes:
    """Return the report as JUnit XML: a test case for each item."""
    skipped = sum(report.count(outcome) for outcome in ("lacking", "unobservable", "skipped"))
    suite = ElementTree.Element(
        "testsuite",
        name=f"{report.protocol} {report.version}",
        tests=str(len(report.results)),
        failures=str(report.count("failed")),
        skipped=str(skipped),
        errors="0",
    )
    for result in report.results:
        item = result.item
        case = ElementTree.SubElement(suite, "testcase", classname=item.area, name=f"{item.id} {item.title}")
        if result.outcome == "failed":
            text = "\n\n".join("\n".join([one.reason, *one.traffic]) for one in result.failures)
            failure = ElementTree.SubElement(case, "failure", message=result.failures[0].reason)
            failure.text = text
        elif result.outcome != "passed":
            ElementTree.SubElement(case, "skipped", message=result.note or _WORDS[result.outcome])
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
