"""The report in docs/performance.md is that of the figures beside it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from benchmarks.report import BEGIN, END, FIGURES, PAGE, PLOT, draw_report


def test_the_page_shows_the_figures_of_the_last_run() -> None:
    tables, plot = draw_report(json.loads(FIGURES.read_text(encoding="utf-8")))
    assert f"{BEGIN}\n{tables}\n{END}" in PAGE.read_text(encoding="utf-8")
    assert PLOT.read_text(encoding="utf-8") == plot


def test_the_plot_has_a_panel_for_each_series_and_the_figures_name_no_place() -> None:
    figures = FIGURES.read_text(encoding="utf-8")
    series = {row["growth"][0] for row in json.loads(figures)["rows"] if "growth" in row}
    svg = ElementTree.parse(PLOT).getroot()
    assert len(svg.findall("{http://www.w3.org/2000/svg}g")) == len(series) >= 3
    assert "/tmp" not in figures
    assert "/home" not in figures


def test_a_case_that_could_not_be_measured_is_said_in_the_table() -> None:
    machine = {"python": "3.11", "cores": 2, "system": "Linux"}
    row = {"name": "replay of 50000 records", "unit": "ms", "ours": 80.0, "floor": 40.0, "ratio": 2.0, "verdict": "ok"}
    tables, _ = draw_report({"machine": machine, "repeats": 3, "rows": [row | {"target": "≤ 4x"}]})
    assert "| replay of 50000 records | 40 ms | 80 ms | 2.00 | ≤ 4x | ok |" in tables
    assert "| text, 50000 pieces | | not measured | | | |" in tables
