"""Files that become commands or instructions by what names them (tools spec 2.4)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kimi.infrastructure.definitions.guarded_files import (
    list_command_directories,
    list_linked_files,
    list_named_files,
    list_skill_files,
)


def put(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x", encoding="utf-8")
    return str(path)


@pytest.mark.spec("R-208")
def test_targets_of_linked_names_are_guarded(tmp_path: Path) -> None:
    rules, store = put(tmp_path / "docs/rules.txt"), tmp_path / "store"
    put(store / "skills/x/SKILL.md")
    os.symlink("docs/rules.txt", tmp_path / "AGENTS.md")
    os.symlink("store", tmp_path / ".kimi")
    assert list(list_linked_files([str(tmp_path)])) == [str(store), str(store / "skills"), rules]


@pytest.mark.spec("R-208")
def test_directories_that_git_names_are_guarded(tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(("git", *identity, *arguments), cwd=main, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("config", "core.hooksPath", "tools/hooks")
    assert list(list_linked_files([str(main)])) == [str(main / "tools/hooks")]
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    found = list(list_linked_files([str(tmp_path / "tree")]))
    assert found == [str(main / ".git/worktrees/tree"), str(main / ".git"), str(tmp_path / "tree/tools/hooks")]


@pytest.mark.spec("R-208")
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("tools/check.sh --all", ["tools/check.sh"]),
        ("python3 check.py", ["check.py"]),
        ("bash -c 'cd x && ./tools/check.sh'", ["tools/check.sh"]),
        ("OUT=log tools/new.sh < check.py", ["tools/new.sh", "check.py"]),
        ("ruff check tools .", []),
    ],
)
def test_files_that_a_command_names_are_guarded(command: str, named: list[str], tmp_path: Path) -> None:
    put(tmp_path / "tools/check.sh")
    put(tmp_path / "check.py")
    assert list(list_named_files(command, str(tmp_path))) == [str(tmp_path / name) for name in named]


@pytest.mark.spec("R-208")
def test_what_skills_link_to_is_guarded(tmp_path: Path) -> None:
    put(tmp_path / "shared/SKILL.md")
    root = tmp_path / "skills"
    root.mkdir()
    os.symlink("../shared", root / "x")
    missing = str(tmp_path / "none")
    assert list(list_skill_files([str(root), missing])) == [str(root), str(tmp_path / "shared"), missing]


@pytest.mark.spec("R-208")
def test_directories_of_programs_are_guarded_but_not_the_opened_one(tmp_path: Path) -> None:
    work = str(tmp_path / "bin/work")
    search = os.pathsep.join(["/usr/bin", "", ".", "node_modules/.bin", str(tmp_path / "bin"), str(tmp_path / "venv")])
    assert list_command_directories(search, work) == ["/usr/bin", str(tmp_path / "venv")]
