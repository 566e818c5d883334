"""Rooms that a stranger can find his way in: sizes of folders, unique names of classes, few parameters."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("domain", "application", "infrastructure", "interfaces")
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))

MAX_MODULES = 14
MAX_PARAMETERS = 8
COMMAND_LINE = ROOT / "interfaces/kimi/interfaces/cli"
"""The functions there that typer calls have a parameter for each option; the command line has that many."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def test_folder_has_at_most_fourteen_modules() -> None:
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_class_name_stands_once_in_the_project() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_function_takes_at_most_eight_parameters() -> None:
    wide: dict[str, int] = {}
    for path in MODULES:
        if path.parent == COMMAND_LINE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function) and (count := parameter_count(node)) > MAX_PARAMETERS:
                wide[f"{path.relative_to(ROOT)}: {node.name}"] = count
    assert wide == {}


def parameter_count(function: Function) -> int:
    """How many arguments a caller may give: `self` and `cls` do not count."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_parameters_of_a_method_are_counted_without_self() -> None:
    (function,) = ast.parse("def f(self, a, /, b, *, c): ...").body
    assert isinstance(function, Function)
    assert parameter_count(function) == 3


def test_test_name_fits_in_79_characters() -> None:
    long: list[str] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function) and node.name.startswith("test_") and len(node.name) > 79:
                long.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert long == []


def test_every_test_stands_where_its_module_stands() -> None:
    """The folders below `tests/` that are named like a layer have no folder that the layer does not have."""
    strange = [
        str(folder.relative_to(ROOT))
        for layer in LAYERS
        for folder in {path.parent for path in (ROOT / "tests" / layer).rglob("test_*.py")}
        if not (ROOT / layer / "kimi" / layer / folder.relative_to(ROOT / "tests" / layer)).is_dir()
    ]
    assert strange == []
