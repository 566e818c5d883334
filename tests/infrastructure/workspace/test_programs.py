"""Where a program is found: never in a directory that the search path names relatively (tools spec 3.1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimi.infrastructure.workspace.processes import StartProgram, run_process, start_in_group, start_program
from kimi.infrastructure.workspace.programs import find_program


def write_program(path: Path) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\necho from $0\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.spec("R-176")
def test_relative_entries_of_the_path_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("thing", "bin/thing"):
        write_program(tmp_path / place)
    wanted = write_program(tmp_path / "absolute" / "thing")
    for path in ("", ".", "bin", "./bin:", ":bin::."):
        assert find_program("thing", {"PATH": path}) is None
        assert find_program("thing", {"PATH": f"{path}:{tmp_path / 'absolute'}"}) == wanted
    assert find_program("./thing", {"PATH": ""}) == "./thing"
    assert find_program("sh", {}) is not None


@pytest.mark.spec("R-176")
@pytest.mark.anyio
@pytest.mark.parametrize("start", [start_program, start_in_group])
async def test_a_program_of_the_directory_is_not_started_by_its_name(tmp_path: Path, start: StartProgram) -> None:
    write_program(tmp_path / "git")
    env = {**os.environ, "PATH": f".:{os.environ['PATH']}"}
    async with run_process(
        ["git", "--version"], cwd=str(tmp_path), env=env, merge_stderr=True, kill_orphans=False, start=start
    ) as process:
        assert b"git version" in b"".join([block async for block in process.output()])
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        async with run_process(
            ["no-such-program"], cwd="/", env=env, merge_stderr=True, kill_orphans=False, start=start
        ):
            pass
