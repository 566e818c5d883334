"""Figures: repeated, interleaved, as medians; what they are held against."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from benchmarks.worlds import FLOOR, OURS, Candidate

MARGIN = 1.3
"""How far beyond its target a figure may be before it fails: the machines are shared and noisy."""

Measured: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """At most `ratio` times the floor, at most `value`, at most `over` more than the floor: what is given must hold."""

    ratio: float | None = None
    value: float | None = None
    over: float | None = None

    def limit(self, floor: float | None) -> float:
        """The largest figure that meets the target."""
        limits = [] if self.value is None else [self.value]
        if floor is not None:
            limits += [] if self.ratio is None else [self.ratio * floor]
            limits += [] if self.over is None else [self.over + floor]
        return min(limits)

    def __str__(self) -> str:
        said = {"≤ {:g}": self.value, "≤ {:g}x": self.ratio, "≤ floor + {:g}": self.over}
        return ", ".join(form.format(number) for form, number in said.items() if number is not None)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: medians of ours, of the floor and, if it was asked for, of the reference."""

    name: str
    unit: str
    ours: float
    floor: float | None = None
    reference: float | None = None
    target: Target | None = None
    growth: tuple[str, float] | None = None
    """A point of the plot: its series, and the size of the work."""

    @property
    def ratio(self) -> float | None:
        """Ours to the floor."""
        return self.ours / self.floor if self.floor else None

    @property
    def verdict(self) -> str:
        """`ok`, `near` (beyond the target, within the margin), `FAIL`; empty without a target."""
        if self.target is None:
            return ""
        limit = self.target.limit(self.floor)
        if self.ours <= limit:
            return "ok"
        return "near" if self.ours <= limit * MARGIN else "FAIL"


@dataclass(frozen=True, slots=True)
class Bench:
    """How to measure: with how many repetitions, small or in full, and beside which reference."""

    repeats: int = 3
    quick: bool = False
    reference: Candidate | None = None
    say: Callable[[str], object] = field(default=lambda text: print(text, file=sys.stderr, flush=True))

    def medians(
        self, what: str, measure: Callable[[Candidate], Measured], among: Sequence[Candidate] = (OURS, FLOOR)
    ) -> dict[str, Measured]:
        """Measure the candidates in turns; the median of each figure, by the name of the candidate."""
        everyone = [*among, *([self.reference] if self.reference else [])]
        runs: dict[str, list[Measured]] = {candidate.name: [] for candidate in everyone}
        for repeat in range(self.repeats):
            for candidate in everyone:
                self.say(f"{what}: {candidate.name} {repeat + 1}/{self.repeats}")
                runs[candidate.name].append(measure(candidate))
        return {name: {key: median(run[key] for run in found) for key in found[0]} for name, found in runs.items()}


Case: TypeAlias = Callable[[Bench], list[Row]]
"""What is run by its name: the module in `benchmarks/cases` lists its own in `CASES`."""


def row(
    name: str,
    unit: str,
    found: Mapping[str, Measured],
    key: str,
    target: Target | None = None,
    scale: float = 1,
    growth: tuple[str, float] | None = None,
) -> Row:
    """The row of one figure; `scale` brings it into `unit`."""

    def of(candidate: str) -> float | None:
        figure = found.get(candidate, {}).get(key)
        return None if figure is None else figure * scale

    return Row(name, unit, of(OURS.name) or 0.0, of(FLOOR.name), of("reference"), target, growth)


def ms(
    name: str,
    found: Mapping[str, Measured],
    key: str,
    target: Target | None = None,
    growth: tuple[str, float] | None = None,
) -> Row:
    """The row of a time that was measured in seconds and is shown in milliseconds."""
    return row(name, "ms", found, key, target, 1e3, growth)
