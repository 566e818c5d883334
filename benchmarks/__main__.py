"""`python -m benchmarks [case…] [--quick] [--repeats N] [--json] [--reference COMMAND]`; see docs/performance.md.

`python -m benchmarks report` measures what the report holds and writes it.

The exit status is 1 when a figure is beyond its target by more than the margin.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pkgutil import iter_modules

import benchmarks.cases
from benchmarks.figures import Bench, Case, Row
from benchmarks.report import report
from benchmarks.worlds import reference


def find_cases() -> dict[str, Case]:
    """The cases of all modules in `benchmarks/cases`, by name."""
    found: dict[str, Case] = {}
    for module in sorted(info.name for info in iter_modules(benchmarks.cases.__path__)):
        found |= import_module(f"benchmarks.cases.{module}").__dict__.get("CASES", {})
    return found


def table(rows: Sequence[Row]) -> str:
    """The rows as text, in columns."""
    head = ["", "unit", "kimi", "floor", "ratio", "reference", "target", "verdict"]
    body = [
        [
            row.name, row.unit, _figure(row.ours), _figure(row.floor), _figure(row.ratio), _figure(row.reference),
            str(row.target or ""), row.verdict,
        ]
        for row in rows
    ]  # fmt: skip
    if not any(row.reference is not None for row in rows):
        head, body = head[:5] + head[6:], [cells[:5] + cells[6:] for cells in body]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in (head, *body)
    )
    return "\n".join(lines)


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}" if number < 10 else f"{number:.1f}"


def main(arguments: Sequence[str]) -> int:
    """Run the cases that are named, or all."""
    cases = find_cases()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure kimi against the floor.")
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(cases) + "; or `report`")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, one run each")
    parser.add_argument("--repeats", type=int, help="runs of each candidate (default 3, quick 1)")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of the table")
    parser.add_argument("--reference", help="the command of another implementation, to be measured as well")
    options = parser.parse_args(arguments)
    is_report = options.cases == ["report"]
    if not is_report and (unknown := set(options.cases) - set(cases)):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if is_report and options.quick:
        parser.error("the report is of the full sizes: leave out --quick")
    bench = Bench(
        repeats=options.repeats or (1 if options.quick else 3),
        quick=options.quick,
        reference=reference(options.reference) if options.reference else None,
    )
    named = (row for name in options.cases or cases for row in cases[name](bench))
    rows = report(cases, bench) if is_report else list(named)
    if options.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio, "verdict": row.verdict} for row in rows]))
    else:
        print(table(rows))
    return 1 if any(row.verdict == "FAIL" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
