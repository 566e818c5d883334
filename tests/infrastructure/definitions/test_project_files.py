"""Which files become part of a prompt, in a project that somebody else made (runtime spec 6.2)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from kimi.domain.permissions.path_rules import PathScopes
from kimi.infrastructure.definitions.project_files import FileNotTrusted, PromptFiles, list_dirs_from_project_root
from kimi.infrastructure.definitions.project_text import load_agents_text

STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git").mkdir(parents=True)
    return made


def agents_text(work_dir: Path, closed: PathScopes | None = None) -> str:
    """What the prompt says of AGENTS.md."""
    root = list_dirs_from_project_root(str(work_dir))[0]
    return load_agents_text(str(work_dir), PromptFiles(root, closed or PathScopes()))


def put(path: Path, text: str = "SECRET") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.spec("R-200")
@pytest.mark.parametrize("name", ["AGENTS.md", "agents.md", ".kimi/AGENTS.md", "below/AGENTS.md"])
@pytest.mark.parametrize(
    "target", ["plain", "relative", "sensitive", "/proc/self/environ", "/proc/self/status", "/dev/zero", "chain"]
)
def test_a_link_puts_no_foreign_file_into_the_prompt(
    name: str, target: str, project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "home/notes.txt")
    put(tmp_path / "home/.ssh/id_rsa")
    put(project / ".env")
    link = project / name
    link.parent.mkdir(parents=True, exist_ok=True)
    places = {
        "plain": str(tmp_path / "home/notes.txt"),
        "relative": os.path.relpath(tmp_path / "home/notes.txt", link.parent),
        "sensitive": str(project / ".env"),
        "chain": str(project / "step"),
    }
    os.symlink(tmp_path / "home/notes.txt", project / "step")
    os.symlink(places.get(target, target), link)
    assert agents_text(link.parent if name.startswith("below") else project) == ""
    assert f"{link} is left out of the prompt: it " in caplog.text


@pytest.mark.spec("R-200")
def test_a_directory_that_is_a_link_is_followed_by_its_real_path(project: Path, tmp_path: Path) -> None:
    put(tmp_path / "home/AGENTS.md")
    os.symlink(tmp_path / "home", project / ".kimi")
    assert agents_text(project) == ""
    put(project / "docs/AGENTS.md", "be kind")
    (project / ".kimi").unlink()
    os.symlink("docs", project / ".kimi")
    os.symlink("docs/AGENTS.md", project / "AGENTS.md")
    assert agents_text(project).count("be kind") == 2


@pytest.mark.spec("R-200")
def test_pipes_and_sockets_are_left_out_at_once(project: Path) -> None:
    os.mkfifo(project / "AGENTS.md")
    begun = time.monotonic()
    assert agents_text(project) == ""
    assert time.monotonic() - begun < 10, "it waited for a writer"


@pytest.mark.spec("R-200")
def test_own_files_are_left_out_under_every_name(project: Path, tmp_path: Path) -> None:
    own = put(project / "share/config.toml")
    put(tmp_path / "plain.txt")
    closed = PathScopes(protected=(str(own),))
    os.symlink("share/config.toml", project / "AGENTS.md")
    assert agents_text(project, closed) == ""
    assert "SECRET" in agents_text(project)


@pytest.mark.spec("R-200")
def test_a_file_has_a_bounded_size_and_is_text(project: Path) -> None:
    files = PromptFiles(str(project))
    path = str(put(project / "a.md", "x" * 1025))
    with pytest.raises(FileNotTrusted, match="more than 1 KiB"):
        files.read(path, 1024, str(project))
    assert files.read(path, 1025, str(project)) == "x" * 1025
    (project / "a.md").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        files.read(path, 1024, str(project))
    with pytest.raises(FileNotTrusted, match="no regular file"):
        files.read(str(project / ".git"), 1024, str(project))


@pytest.mark.spec("R-200")
def test_a_path_that_changes_while_it_is_read_shows_nothing_of_the_outside(project: Path, tmp_path: Path) -> None:
    secret, plain, path = put(tmp_path / "notes"), put(project / "plain", "plain"), project / "AGENTS.md"
    os.symlink(plain, path)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in (secret, plain):
                os.symlink(target, project / "next")
                os.replace(project / "next", path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    files, read = PromptFiles(str(project)), set[str]()
    refused = 0
    try:
        for _ in range(3000):
            try:
                read.add(files.read(str(path), 1024, str(project)))
            except (FileNotTrusted, OSError):
                refused += 1
    finally:
        done.set()
        swapping.join()
    assert read <= {"plain"}
    assert refused


# --- where a project begins -------------------------------------------------------------------------------------


@pytest.mark.spec("R-203")
@needs_root
@pytest.mark.parametrize("given", [".git", ".", "between"])
def test_a_project_above_that_belongs_to_another_user_is_none(given: str, project: Path) -> None:
    work = project / "between/work"
    put(project / "AGENTS.md", "orders of a stranger")
    put(work / "AGENTS.md", "own words")
    assert list_dirs_from_project_root(str(work))[0] == str(project)
    os.chown(project / given, STRANGER, STRANGER)
    assert list_dirs_from_project_root(str(work)) == [str(work)]
    assert "stranger" not in agents_text(work)
    assert "own words" in agents_text(work)


@pytest.mark.spec("R-203")
@needs_root
def test_the_user_who_called_sudo_owns_a_project_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = project / "work"
    work.mkdir()
    for path in (project, project / ".git"):
        os.chown(path, STRANGER, STRANGER)
    assert list_dirs_from_project_root(str(work)) == [str(work)]
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert list_dirs_from_project_root(str(work)) == [str(project), str(work)]


@pytest.mark.spec("R-203")
@needs_root
def test_what_a_stranger_puts_into_an_open_directory_is_left_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    path = put(tmp_path / "AGENTS.md", "orders of a stranger")
    assert "stranger" in agents_text(tmp_path)
    os.chown(path, STRANGER, STRANGER)
    assert agents_text(tmp_path) == ""


def test_the_work_dir_of_another_user_is_read_because_it_was_opened(project: Path) -> None:
    put(project / "AGENTS.md", "words")
    if os.geteuid() == 0:
        os.chown(project, STRANGER, STRANGER)
        os.chown(project / "AGENTS.md", STRANGER, STRANGER)
    assert "words" in agents_text(project)
