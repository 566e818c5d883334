"""Print the checklist items that no test proves: `python scripts/unproved.py [--area PREFIX] [--level LEVEL]`.

An item is proved by the tests that carry its id in `@pytest.mark.spec(...)`. Items that say nearly the same name each
other in the list's last column; none of them is proved by the mark of another, which may say less. With `--strict` the
exit status is 1 when a mark names an id that does not exist.
"""

from __future__ import annotations

import argparse
import ast
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Item(NamedTuple):
    """A line of the id list."""

    id: str
    area: str
    levels: tuple[str, ...]
    text: str


def items() -> list[Item]:
    """The committed id list."""
    with (ROOT / "docs" / "spec" / "ids.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Item(row[0], row[1], tuple(row[2].split(",")), row[3])
            for row in rows
            if row and row[0][:2] in ("W-", "R-", "T-", "A-")
        ]


def marked() -> dict[str, list[str]]:
    """Every id that a mark names, with the places of the marks."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, line in _ids(tree):
            found.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{line}")
    return found


def _ids(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.lineno


def main() -> int:
    """Print the list; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--area", default="", help="only areas that start with this, e.g. wire:framing")
    parser.add_argument("--level", default="", help="only this level: core, extended or sec")
    parser.add_argument("--strict", action="store_true", help="fail when a mark names an unknown id")
    options = parser.parse_args()
    everything, proved = items(), marked()
    chosen = [
        item
        for item in everything
        if item.area.startswith(options.area) and (not options.level or options.level in item.levels)
    ]
    open_items = [item for item in chosen if item.id not in proved]
    for item in open_items:
        print(f"{item.id}\t{item.area}\t{','.join(item.levels)}\t{item.text}")
    print(f"{len(chosen) - len(open_items)} of {len(chosen)} items proved, {len(open_items)} not", file=sys.stderr)
    unknown = sorted(set(proved) - {item.id for item in everything})
    if unknown:
        print(f"marks with unknown ids: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
