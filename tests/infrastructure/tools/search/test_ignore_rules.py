"""Ignore files: the same decisions as git, and no line that holds up a search."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi.infrastructure.tools.search.ignore_rules import GIT_KINDS, SEARCH_KINDS, IgnoreLevel, load_rules_above
from tests.support.patterns.bombs import EXPLOSIVE_GLOBS, LONG_NAME, bounded_cpu_time

NAMES = ("a", "b", "ab", "abc", "a.b", "-", "[", "x y ")
PATHS = [*NAMES, *(f"{one}/{two}" for one in NAMES[:5] for two in NAMES), "a/b/ab", "a/b/a.b", "ab/a/b/abc", "a/a/a/a"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository; which of its paths git ignores is asked without making them."""
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def ignored_by_git(root: Path, paths: list[str]) -> set[str]:
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    return {path for path in done.stdout.decode().split("\0") if path}


def is_ignored(level: IgnoreLevel, root: Path, path: str) -> bool:
    """Whether a walk never gets to `path`: it or a directory above is ignored."""
    parts = path.split("/")
    above = ["/".join(parts[:number]) for number in range(1, len(parts))]
    return any(level.ignores(str(root / name), True) for name in above) or level.ignores(str(root / path), False)


pieces = st.sampled_from(["a", "b", "ab", "*", "**", "?", "a*", "*b", "a*c", "[ab]", "[!a]", "[a-c]b", "\\a", "a.b"])
line = st.tuples(
    st.sampled_from(["", "", "", "!", "/", "!/"]),
    st.lists(pieces, min_size=1, max_size=4).map("/".join),
    st.sampled_from(["", "", "/", " ", "\\ "]),
).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(line, min_size=1, max_size=4))
def test_rules_agree_with_git(repository: Path, lines: list[str]) -> None:
    (repository / ".gitignore").write_text("\n".join(lines) + "\n")
    level = load_rules_above(str(repository), GIT_KINDS).enter(str(repository), {".git", ".gitignore"})
    found = {path for path in PATHS if is_ignored(level, repository, path)}
    assert found == ignored_by_git(repository, PATHS)


@pytest.mark.parametrize(
    "text", ["[", "a[b", "[[:alpha:]]", "[[:digit:][:upper:]]", "[]]", "[!]]", "[a\\]b]", "a\\*", "\\!a", "\\#"]
)
def test_classes_and_escapes_agree_with_git(repository: Path, text: str) -> None:
    (repository / ".gitignore").write_text(text + "\n")
    level = load_rules_above(str(repository), GIT_KINDS).enter(str(repository), {".git", ".gitignore"})
    names = ["a", "A", "z", "1", "]", "a*", "ab", "\\", "!a", "#", "^"]
    assert {name for name in names if is_ignored(level, repository, name)} == ignored_by_git(repository, names)


@pytest.mark.spec("R-214")
@pytest.mark.parametrize("rule", EXPLOSIVE_GLOBS)
def test_a_hostile_rule_is_decided_at_once(tmp_path: Path, rule: str) -> None:
    (tmp_path / ".ignore").write_text(f"{rule}\n/{rule}\n**/{rule}/x\n")
    with bounded_cpu_time(0.5):
        level = load_rules_above(str(tmp_path), SEARCH_KINDS).enter(str(tmp_path), {".ignore"})
        for name in (LONG_NAME, "/".join(["a" * 80] * 40), "ab" * 120, "a/" * 1_000 + "a"):
            level.ignores(f"{tmp_path}/{name}", False)


def test_only_so_many_rules_count(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    for directory in (tmp_path, below):
        (directory / ".ignore").write_text("".join(f"a*b{number}\n" for number in range(60_000)) + "plain\n")
    with bounded_cpu_time(3):
        level = load_rules_above(str(tmp_path), SEARCH_KINDS).enter(str(tmp_path), {".ignore"})
        level = level.enter(str(below), {".ignore"})
        assert level.ignores(str(below / "a-b4999"), False)
        assert not level.ignores(str(below / "a-b5000"), False)
        assert level.ignores(str(below / "plain"), False)


def test_an_ignore_file_that_is_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".ignore")
    level = load_rules_above(str(tmp_path), SEARCH_KINDS).enter(str(tmp_path), {".ignore"})
    assert not level.ignores(str(tmp_path / "a"), False)
