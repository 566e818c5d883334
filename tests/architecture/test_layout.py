"""The shape of the source tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("domain", "application", "infrastructure", "interfaces")
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def test_namespace_package_has_no_init_file() -> None:
    assert [path for layer in LAYERS for path in (ROOT / layer).glob("kimi/__init__.py")] == []


def test_every_other_directory_is_a_package() -> None:
    """One that is not would be there for Python, but not for the import contract, which then says nothing of it."""
    assert [path for path in {path.parent for path in MODULES} if not (path / "__init__.py").is_file()] == [
        ROOT / "interfaces" / "kimi"
    ]


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_has_a_typing_marker(layer: str) -> None:
    assert (ROOT / layer / "kimi" / layer / "py.typed").is_file()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_has_docstring_and_at_most_500_lines(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 500
    if text.strip():
        assert ast.get_docstring(ast.parse(text))


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere, functions included; relative imports do not occur."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


@pytest.mark.spec("T-143")
def test_the_domain_needs_the_standard_library_only() -> None:
    """The import contract can only forbid libraries that it names."""
    names = {name for path in MODULES if path.is_relative_to(ROOT / "domain") for name in imported(path)}
    assert "kimi.domain.content.message" in names
    foreign = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("kimi.domain.")} == set()


@pytest.mark.spec("T-143")
def test_the_import_contract_holds() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout


def test_every_mark_names_an_item_of_the_list() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "unproved.py"), "--strict"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone: nothing says which files are the project's")
def test_no_tracked_file_is_larger_than_256_kib() -> None:
    """A wheel that a tool left in the checkout would stay in the history of everybody's clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [ROOT / name for name in listed.split("\0") if name]
    assert tracked
    assert [path.name for path in tracked if path.is_file() and path.stat().st_size > 256 * 1024] == []
