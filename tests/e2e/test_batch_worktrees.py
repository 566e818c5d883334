"""What git still does when the coordinator of a batch is killed (runtime spec 10.4, 10.5)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.program.batches import batch_of, task
from tests.support.program.processes import comes_true
from tests.support.program.wire_process import Place


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_of_a_killed_coordinator_ends_before_the_next_one_begins(place: Place) -> None:
    """Else it would reset the worktree under the new attempt and undo what that has changed."""
    repository = place.root / "repo"
    repository.mkdir()
    for command in ("init -q -b main", "-c user.name=n -c user.email=e@x commit -q --allow-empty -m first"):
        subprocess.run(("git", *command.split()), cwd=repository, check=True)
    waits, ended = delay_git(place)
    change = json.dumps({"id": "c", "name": "Shell", "arguments": json.dumps({"command": f"cp {ended} seen"})})
    batch = batch_of(place, task("a", f"tool_call: {change}", worktree={"repository": "repo"}))
    with batch.started() as coordinator:
        assert comes_true(waits.exists, 20)
        coordinator.kill()
        coordinator.wait()
    assert not ended.exists()
    batch.run()
    assert (place.root / "tasks.results.worktrees/a/seen").read_text() == "ended\n"


def delay_git(place: Place) -> tuple[Path, Path]:
    """Put a git first in the path whose first checkout takes its time; return the files that tell how far it is."""
    waits, ended, programs = place.root / "waits", place.root / "ended", place.root / "programs"
    programs.mkdir()
    script = programs / "git"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *" reset "*)
    if [ ! -e {waits} ]; then
        echo > {waits}
        {shutil.which("sleep")} 2
        {shutil.which("git")} "$@"
        echo ended > {ended}
        exit 0
    fi
esac
exec {shutil.which("git")} "$@"
"""
    )
    script.chmod(0o755)
    place.environ["PATH"] = f"{programs}:{place.full_environ()['PATH']}"
    return waits, ended
