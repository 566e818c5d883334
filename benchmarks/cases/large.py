"""Tools on much data: floods of output, big files, many files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms, row
from benchmarks.worlds import Candidate, world

_LINE = b"a line of a big file that is eighty bytes long, with its number left out of it.\n"
_MILLION = 1_000_000


def flood(bench: Bench) -> list[Row]:
    """A command that writes 200 MB of short lines."""
    size = (50 if bench.quick else 200) * _MILLION
    command = f"yes 'a line of thirty-six characters, or so' | head -c {size}"
    found = _measured(bench, "flood", "Shell", {"command": command, "timeout": 120}, lambda work: None)
    return _rows(f"Shell, {size // _MILLION} MB of output", found, Target(ratio=2))


def files(bench: Bench) -> list[Row]:
    """The head and the tail of a big file, and a file that is one line."""
    size = (50 if bench.quick else 200) * _MILLION

    def lines(work: Path) -> None:
        _write(work / "big.txt", _LINE, size)

    def one_line(work: Path) -> None:
        _write(work / "big.txt", b"x" * 80, size)

    rows: list[Row] = []
    for name, offset, prepare in (("head", 1, lines), ("tail", -100, lines), ("one line", 1, one_line)):
        arguments: dict[str, object] = {"path": "big.txt", "line_offset": offset, "n_lines": 100}
        found = _measured(bench, f"ReadFile {name}", "ReadFile", arguments, prepare)
        rows += _rows(f"ReadFile, {size // _MILLION} MB, {name}", found, Target(ratio=3))
    return rows


def _write(path: Path, line: bytes, size: int) -> None:
    block = line * (_MILLION // len(line))
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)


def search(bench: Bench) -> list[Row]:
    """Grep and Glob over many files; the floor runs bare ripgrep."""
    count = 4_000 if bench.quick else 20_000

    def prepare(work: Path) -> None:
        for directory in range(count // 100):
            (work / f"d{directory}").mkdir()
            for number in range(100):
                text = f"def function_{number}(): return {directory}\n# needle\n" * 20
                (work / f"d{directory}" / f"m{number}.py").write_text(text)

    grep: dict[str, object] = {"pattern": "needle", "path": ".", "output_mode": "content"}
    found = _measured(bench, "Grep", "Grep", grep, prepare)
    rows = _rows(f"Grep content, {count} files", found, Target(over=100))
    found = _measured(bench, "Glob", "Glob", {"pattern": "**/*7.py"}, prepare)
    return rows + _rows(f"Glob, {count} files", found, Target(over=50))


def _measured(
    bench: Bench, what: str, name: str, arguments: dict[str, object], prepare: Callable[[Path], None]
) -> dict[str, Measured]:
    """Seconds of one call, and by how much memory grew at most; a small command before it has warmed everything."""
    spec: Json = {"calls": [["Shell", json.dumps({"command": "true"})], None, [name, json.dumps(arguments)]]}

    def measure(candidate: Candidate) -> Measured:
        with world(candidate, spec, prepare) as place, place.wire() as client:
            client.initialize()
            time.sleep(0.5)
            client.prompt("go")
            before = client.memory_mb()
            turn = client.prompt("go")
            return {
                "seconds": turn.times("ToolResult")[0] - turn.times("StepBegin")[0],
                "growth": client.memory_mb(peak=True) - before,
            }

    return bench.medians(what, measure)


def _rows(name: str, found: dict[str, Measured], target: Target) -> list[Row]:
    return [ms(name, found, "seconds", target), row("  memory, growth", "MB", found, "growth", Target(value=5))]


CASES: dict[str, Case] = {"flood": flood, "files": files, "search": search}
