"""The pages for contributors: they are listed, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WALKS = sorted((ROOT / "docs" / "contributing").glob("*.md"))
OF_THE_EXAMPLES = re.compile(r"word_count|greet_user|test_events|/events/|/acme/")
"""What a reader creates on a walk."""


def test_contributing_page_leads_to_every_walk() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [walk.name for walk in WALKS if f"(docs/contributing/{walk.name})" not in page] == []


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.stem)
def test_every_file_that_a_walk_names_exists(walk: Path) -> None:
    text = walk.read_text(encoding="utf-8")
    roots = "domain|application|infrastructure|interfaces|tests|docs"
    named = re.findall(rf"(?<![\w/.])(?:{roots})/[\w./-]*\w/?", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    linked = [f"docs/contributing/{link}" for link in re.findall(r"\]\(([^)#]+)\)", text)]
    assert named
    assert [path for path in (*named, *linked) if not OF_THE_EXAMPLES.search(path) and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.stem)
def test_no_line_of_prose_in_a_walk_is_too_long(walk: Path) -> None:
    prose = re.sub(r"```.*?```", "", walk.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")] == []
