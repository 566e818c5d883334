"""The list of the modules that tests share is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "support"
HEADING = re.compile(r"## (?:`(?P<folder>[a-z_]+)`|Here)")
ROW = re.compile(r"\| `(?P<module>[a-z_]+\.py)` \| (?P<purpose>.*) \|")


def listed_modules(text: str) -> Iterator[tuple[str, str]]:
    """The path of each listed module below `tests/support`, and its purpose."""
    folder = ""
    for line in text.splitlines():
        if heading := HEADING.match(line):
            folder = f"{heading['folder']}/" if heading["folder"] else ""
        elif row := ROW.fullmatch(line):
            yield folder + row["module"], row["purpose"]


def test_readme_lists_every_module_once_and_none_that_does_not_exist() -> None:
    listed = [module for module, _ in listed_modules((SUPPORT / "README.md").read_text(encoding="utf-8"))]
    modules = [path.relative_to(SUPPORT).as_posix() for path in SUPPORT.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(listed) == sorted(modules)


def test_readme_says_what_every_module_is_for() -> None:
    purposes = dict(listed_modules((SUPPORT / "README.md").read_text(encoding="utf-8")))
    assert [module for module, purpose in purposes.items() if not purpose.strip()] == []
