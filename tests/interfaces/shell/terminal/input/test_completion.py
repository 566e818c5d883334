"""What `/` and `@` complete to, and where."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from kimi.domain.command import CommandInfo
from kimi.interfaces.bootstrap.shell import list_git_files, walk_files
from kimi.interfaces.completion.work_dir_files import GIT_S, MAX_FILES, WorkDirFiles
from kimi.interfaces.shell.terminal.input.completion import InputCompleter, rank_files, rank_name
from tests.support.program.processes import comes_true

COMMANDS = (
    CommandInfo("help", "Keys", ("h", "?")),
    CommandInfo("hooks", "Hooks"),
    CommandInfo("sessions", "Others", ("resume",)),
    CommandInfo("skill:review", "Review"),
)


def completed(text: str, files: tuple[str, ...] = (), work_dir: str = "/nowhere") -> list[str]:
    """The completions of a text before the cursor."""
    completer = InputCompleter(lambda: COMMANDS, lambda _: files, work_dir)
    return [one.text for one in completer.get_completions(Document(text), CompleteEvent())]


def work_dir_files(work_dir: Path) -> WorkDirFiles:
    return WorkDirFiles(str(work_dir), walk_files, lambda directory: list_git_files(directory, os.environ))


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/", ["/help", "/hooks", "/sessions", "/skill:review"]),
        ("/h", ["/help", "/hooks"]),
        ("/res", ["/sessions"]),
        ("/sss", ["/sessions"]),
        ("/rev", ["/skill:review"]),
        ("/skill:", ["/skill:review"]),
        ("say /h", []),
        ("/help x", []),
        ("/usr/bin", []),
    ],
)
def test_commands_are_completed(typed: str, found: list[str]) -> None:
    assert completed(typed) == found


@pytest.mark.parametrize("before", list("aZ5.-_`'\":@#~"))
def test_files_do_not_complete_within_words(before: str) -> None:
    assert completed(f"{before}@f", ("file.py",)) == []


@pytest.mark.parametrize("before", ["", " ", "(", "\n", "见"])
def test_files_are_completed_after_other_characters(before: str) -> None:
    assert completed(f"{before}@f", ("file.py",)) == ["file.py"]


def test_a_completed_file_closes_the_menu(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("", encoding="utf-8")
    files = ("a.py", "a.pyi")
    assert completed("@a.p", files, str(tmp_path)) == ["a.py", "a.pyi"]
    assert completed("@a.py", files, str(tmp_path)) == []


def test_file_names_rank_before_directories() -> None:
    paths = ("test/other.py", "src/test_it.py", "test.py", "a/t/e/s/t")
    assert rank_files(paths, "test") == ["test.py", "src/test_it.py", "test/other.py", "a/t/e/s/t"]
    assert rank_name("abc", "cab") is None


def test_short_query_searches_the_top_level_and_longer_ones_all(tmp_path: Path) -> None:
    for name in ("top.py", "deep/down/topic.py", "skip/top.py", "link/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / ".ignore").write_text("skip/\n", encoding="utf-8")
    files = work_dir_files(tmp_path)
    assert files.find_matching("to") == [".ignore", "deep/", "link/", "top.py"]
    assert sorted(files.find_matching("top")) == ["deep/down/topic.py", "top.py"]
    assert files.find_matching("deep/") == ["deep/down/"]
    assert "deep/down/topic.py" in files.find_matching("deep/topi")


def test_completion_runs_no_program_that_a_repository_names(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n", encoding="utf-8")
    monitor.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(monitor)], cwd=tmp_path, check=True)
    assert work_dir_files(tmp_path).find_matching("monitor") == ["monitor"]
    assert not (tmp_path / "ran").exists()


def test_closing_ends_a_running_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    (work / ".git").mkdir(parents=True)
    git = programs / "git"
    git.write_text(f"#!/bin/sh\n: > {work / 'begun'}\nexec /bin/sleep 60\n", encoding="utf-8")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    files = work_dir_files(work)
    with ThreadPoolExecutor() as threads:
        search = threads.submit(files.find_matching, "begun")
        assert comes_true((work / "begun").exists)
        files.close()
        assert search.result(GIT_S / 2) == []
    assert files.find_matching("begun") == []


def test_a_large_tree_is_bounded(tmp_path: Path) -> None:
    files = WorkDirFiles(str(tmp_path), lambda _: [f"dir/file{number}.txt" for number in range(5000)], lambda _: None)
    assert len(files.find_matching("file")) == MAX_FILES
