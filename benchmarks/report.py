"""The report of one run: its figures as data, and from them the tables and the plot of docs/performance.md.

uv run python -m benchmarks report      # measure, then write all three
uv run python -m benchmarks.report      # write tables and plot again, from the figures of the last run
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import Bench, Case, Row
from benchmarks.plot import Series, draw_growth

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "performance" / "figures.json"
PLOT = DOCS / "performance" / "growth.svg"
PAGE = DOCS / "performance.md"
BEGIN, END = "<!-- from one run: begin -->", "<!-- from one run: end -->"

REPORTED: Mapping[str, Sequence[str]] = {
    "first-turn": (
        "spawn → first piece of the first turn, wire",
        "memory after the handshake, wire",
        "memory after 20 turns, wire",
    ),
    "first-turn-editor": (
        "spawn → first piece of the first turn, editor",
        "second turn at once, editor",
        "memory after the handshake, editor",
        "memory after 20 turns, editor",
    ),
    "at-once": ("turn, answered at once, wire", "turn, answered at once, editor"),
    "steps": ("step, in a turn of 200", "  last quarter to first, of 200"),
    "approvals": ("step with an approval in an editor",),
    "sessions": ("slowest first piece of 64 sessions",),
    "replay": ("replay of 50000 records", "replay of 50000 records of turns"),
    "load": ("session/load of 50000 records", "session/load of 50000 records of turns"),
    "tree": (
        "Glob in 500 000 files, to find",
        "Grep in 500 000 files, to rg",
        "@ in 500 000 files, to rg --files",
        "spawn → initialize in 500 000 files, to an empty directory",
    ),
    "soak": (
        "memory over 1000 turns on the wire, after the first tenth",
        "memory over 1000 turns in an editor, after the first tenth",
        "memory over 200 sessions of an editor, after the first tenth",
    ),
    "text": ("text, 50000 pieces",),
    "arguments": ("arguments, 50000 pieces",),
    "history": ("  later turns on 10000 messages",),
}
"""The rows of the table by the case that measures them; what else the cases measure is in the data."""


def report(cases: Mapping[str, Case], bench: Bench) -> list[Row]:
    """Measure what is reported and write it. A case that fails is left out of the report, and said."""
    rows: list[Row] = []
    for name in REPORTED:
        try:
            rows += cases[name](bench)
        except Exception as error:  # the figures of the other cases are not to be lost
            bench.say(f"{name}: not measured: {type(error).__name__}: {error}")
    machine = {"system": platform.system(), "python": platform.python_version(), "cores": os.cpu_count()}
    FIGURES.parent.mkdir(exist_ok=True)
    found = {"machine": machine, "repeats": bench.repeats, "rows": [_to_json(row) for row in rows]}
    FIGURES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page()
    return rows


def _to_json(row: Row) -> dict[str, Any]:
    """A row with four digits of each figure; no more of them carry anything."""
    figures = {"ours": row.ours, "floor": row.floor, "reference": row.reference, "ratio": row.ratio}
    rounded = {name: None if figure is None else float(f"{figure:.4g}") for name, figure in figures.items()}
    whole = {**asdict(row), **rounded, "target": None if row.target is None else str(row.target)}
    return {key: value for key, value in {**whole, "verdict": row.verdict}.items() if value not in (None, "")}


def write_page() -> None:
    """Write the tables and the plot from the figures of the last run."""
    tables, plot = draw_report(json.loads(FIGURES.read_text(encoding="utf-8")))
    PLOT.write_text(plot, encoding="utf-8")
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{tables}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def draw_report(found: Mapping[str, Any]) -> tuple[str, str]:
    """The tables, as Markdown with the picture between them, and the plot."""
    rows: list[dict[str, Any]] = found["rows"]
    series = _read_series(rows)
    machine = found["machine"]
    made = (
        f"Medians of {found['repeats']} runs, Python {machine['python']} on {machine['cores']} cores, "
        f"{machine['system']}."
    )
    picture = "![Growth of time with the size of the work](performance/growth.svg)"
    return "\n\n".join((made, _main_table(rows), picture, _growth(series))), draw_growth(series)


def _main_table(rows: Sequence[Mapping[str, Any]]) -> str:
    by_name = {row["name"]: row for row in rows}
    wanted = [name for names in REPORTED.values() for name in names]
    lines = ["| work | floor | ours | ratio | goal | |", "|---|---|---|---|---|---|"]
    for name in wanted:
        row = by_name.get(name)
        if row is None:
            lines.append(f"| {name.strip()} | | not measured | | | |")
            continue
        cells = (name.strip(), _figure(row, "floor"), _figure(row, "ours"), _ratio(row), row.get("target", ""))
        lines.append(f"| {' | '.join(cells)} | {row.get('verdict', '')} |")
    return "\n".join(lines)


def _figure(row: Mapping[str, Any], key: str) -> str:
    if key not in row:
        return ""
    number = row[key]
    return f"{number:.3g} {row['unit']}".strip() if number < 1000 else f"{number:.0f} {row['unit']}".strip()


def _ratio(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.2f}" if "ratio" in row else ""


def _read_series(rows: Sequence[Mapping[str, Any]]) -> list[Series]:
    found: dict[str, list[tuple[float, float, float | None]]] = {}
    for row in rows:
        if "growth" in row:
            name, size = row["growth"]
            found.setdefault(name, []).append((size, row["ours"], row.get("floor")))
    return [Series(name, tuple(sorted(points))) for name, points in found.items()]


def _growth(series: Sequence[Series]) -> str:
    lines = ["| growth of | sizes | ours | floor |", "|---|---|---|---|"]
    for one in series:
        if len(one.points) > 1:
            sizes = f"{one.points[0][0]:g} to {one.points[-1][0]:g}"
            lines.append(f"| {one.name} | {sizes} | {_exponent(one, 1)} | {_exponent(one, 2)} |")
    return "\n".join([*lines, "", "The exponent tells how time grows with size: 1 is in proportion, 2 is quadratic."])


def _exponent(series: Series, column: int) -> str:
    (small, first), (large, last) = ((point[0], point[column]) for point in (series.points[0], series.points[-1]))
    return "" if not first or not last else f"{math.log(last / first) / math.log(large / small):.2f}"


if __name__ == "__main__":
    write_page()
