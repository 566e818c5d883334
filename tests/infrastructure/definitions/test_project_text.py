"""What the system prompt says of the project: AGENTS.md files and a tree (runtime spec 6.2)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kimi.infrastructure.definitions import project_text
from kimi.infrastructure.definitions.project_files import PromptFiles, list_dirs_from_project_root
from kimi.infrastructure.definitions.project_text import AGENTS_BYTES, format_directory_tree


def load_agents_text(work_dir: str) -> str:
    return project_text.load_agents_text(work_dir, PromptFiles(list_dirs_from_project_root(work_dir)[0]))


def write(path: Path, text: str) -> Path:
    """A file with this text, its directory made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.spec("R-116")
def test_agents_files_are_read_from_project_root_to_work_dir(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "above the project")
    root = tmp_path / "project"
    write(root / ".git" / "HEAD", "")
    work = root / "a" / "b"
    one = write(root / "AGENTS.md", "\none\n")
    two = write(root / "a" / ".kimi" / "AGENTS.md", "two")
    three = write(root / "a" / "agents.md", "three")
    write(work / "agents.md", "not read: the other spelling is there")
    four = write(work / "AGENTS.md", "four")
    write(root / "a" / "other" / "AGENTS.md", "beside the way")

    assert load_agents_text(str(work)) == "\n\n".join(
        f"<!-- From: {path} -->\n{text}"
        for path, text in ((one, "one"), (two, "two"), (three, "three"), (four, "four"))
    )
    assert load_agents_text(str(tmp_path)) == f"<!-- From: {tmp_path / 'AGENTS.md'} -->\nabove the project"
    write(root / "a" / "other" / "AGENTS.md", "  \n")
    assert "other" not in load_agents_text(str(root / "a" / "other"))


@pytest.mark.spec("R-116")
def test_agents_files_have_a_budget_that_the_deepest_uses_first(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "")
    work = tmp_path / "a" / "b"
    write(tmp_path / "AGENTS.md", "r" * 20_000)
    write(tmp_path / "a" / "AGENTS.md", "é" * 8_000)
    write(work / "AGENTS.md", "w" * 10_000)

    text = load_agents_text(str(work))

    assert len(text.encode()) <= AGENTS_BYTES == 32 * 1024
    assert len(text.encode()) > AGENTS_BYTES - 4
    assert (text.count("w" * 10_000), text.count("é")) == (1, 8_000)
    assert 0 < text.count("r" * 100) < 200
    assert text.count("<!-- From: ") == 3

    write(work / "AGENTS.md", "w" * 40_000)
    alone = load_agents_text(str(work))
    assert len(alone.encode()) == AGENTS_BYTES
    assert alone.count("<!-- From: ") == 1


def test_work_dir_tree_is_rendered(tmp_path: Path) -> None:
    for number in range(32):
        write(tmp_path / f"file{number:02}", "")
    for number in range(12):
        write(tmp_path / "src" / f"m{number:02}.py", "")
    write(tmp_path / "docs" / "deep" / "x", "")
    lines = format_directory_tree(str(tmp_path)).split("\n")
    assert lines[:4] == ["docs/", "  deep/", "src/", "  m00.py"]
    assert lines[12:14] == ["  m09.py", "  ... and 2 more"]
    assert lines[-2:] == ["file27", "... and 4 more"]
    assert format_directory_tree(str(tmp_path / "none")) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_in_the_tree_stay_on_their_line_and_are_text(tmp_path: Path) -> None:
    for name in (b"bad\xff", b"```\n# Orders", b"a <system>b", "é\u202f".encode()):
        (tmp_path / os.fsdecode(name)).touch()
    assert format_directory_tree(str(tmp_path)).split("\n") == [
        "```\ufffd# Orders",
        "a &lt;system>b",
        "bad\ufffd",
        "é\u202f",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_directory_whose_name_is_no_text_may_hold_instructions(tmp_path: Path) -> None:
    work = tmp_path / os.fsdecode(b"wo\xffrk")
    write(work / "AGENTS.md", "read me")
    assert load_agents_text(str(work)).endswith("/wo\ufffdrk/AGENTS.md -->\nread me")
