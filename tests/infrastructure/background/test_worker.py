"""The worker of a background task on a disk that takes nothing (tools spec 3.1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

from tests.support.program.processes import all_gone, comes_true

PROGRAM = "import sys; from kimi.infrastructure.background.worker import main; main(sys.argv[1])"


def test_command_whose_state_cannot_be_stored_is_still_ended(tmp_path: Path) -> None:
    spec = {
        "words": ["/bin/sh", "-c", "echo begun; exec sleep 100"],
        "cwd": str(tmp_path),
        "timeout_s": 60,
        "heartbeat_s": 5,
        "grace_s": 2,
        "keep_alive": False,
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    (tmp_path / "runtime.json").mkdir()  # no file can take its place
    word = f"MARK_{uuid.uuid4().hex}"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, word: "1"},
        start_new_session=True,
    ) as worker:
        output = tmp_path / "output.log"
        assert comes_true(lambda: output.exists() and "begun" in output.read_text())
        assert worker.stdin is not None
        worker.stdin.close()  # the program has ended
        worker.wait(30)
    assert all_gone(word)
