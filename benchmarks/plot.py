"""The growth of time with the size of the work, as SVG: a panel for each series, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 300, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 36
OURS, FLOOR, GRID = "#0969da", "#8c6d1f", "#c8ccd1"
_STYLE = "font-family: sans-serif; font-size: 11px; fill: #57606a"


@dataclass(frozen=True, slots=True)
class Series:
    """What grows, and its points: size, milliseconds of ours, milliseconds of the floor; sizes grow."""

    name: str
    points: tuple[tuple[float, float, float | None], ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value is drawn."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)


def draw_growth(series: Sequence[Series]) -> str:
    """A panel for each series, three in a row, with a legend below."""
    columns = 3
    rows = -(-len(series) // columns)
    width, height = columns * WIDTH, rows * HEIGHT + 30
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="{_STYLE}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for at, one in enumerate(series):
        pieces.append(f'<g transform="translate({at % columns * WIDTH} {at // columns * HEIGHT})">')
        pieces += _draw_panel(one)
        pieces.append("</g>")
    for at, (colour, text) in enumerate(((OURS, "kimi"), (FLOOR, "floor"))):
        x, y = LEFT + at * 80, height - 12
        pieces.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        pieces.append(f'<text x="{x + 26}" y="{y}">{text}</text>')
    return "\n".join([*pieces, "</svg>", ""])


def _draw_panel(series: Series) -> Iterator[str]:
    sizes = [point[0] for point in series.points]
    times = [time for point in series.points for time in point[1:] if time]
    across = _Axis(min(sizes) / 1.2, max(sizes) * 1.2, LEFT, WIDTH - RIGHT)
    up = _Axis(min(times) / 1.5, max(times) * 1.5, HEIGHT - BOTTOM, TOP)
    yield f'<text x="{LEFT}" y="20" style="font-weight: bold">{escape(series.name)}, ms</text>'
    for time in _ticks(up):
        y = up.place(time)
        yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="{GRID}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{time:g}</text>'
    for size in sizes:
        yield f'<text x="{across.place(size)}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(size)}</text>'
    for colour, column in ((FLOOR, 2), (OURS, 1)):
        found = [(across.place(point[0]), up.place(time)) for point in series.points if (time := point[column])]
        path = " ".join(f"{x},{y}" for x, y in found)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in found)


def _ticks(axis: _Axis) -> list[float]:
    """Powers of ten within the axis; with 2 and 5 times them where there are few."""
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    tens, all_ticks = ([factor * 10.0**power for power in powers for factor in each] for each in ((1,), (1, 2, 5)))
    within = [tick for tick in tens if axis.low <= tick <= axis.high]
    return within if len(within) > 2 else [tick for tick in all_ticks if axis.low <= tick <= axis.high]


def _short(size: float) -> str:
    return f"{size / 1000:g}k" if size >= 1000 else f"{size:g}"
