"""How processes are found below one: the order in which they are asked to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kimi.infrastructure.launcher.containment import find_descendants, kill_trees
from tests.support.program.wire_process import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the children of a process")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_parents_are_found_before_their_children() -> None:
    nested = "sh -c 'sh -c \"sleep 60 & sleep 60; :\" & sleep 60; :' & sleep 60; :"
    with subprocess.Popen(["sh", "-c", nested], start_new_session=True) as top:
        try:
            assert eventually(lambda: len(find_descendants([top.pid])) == 7)
            found = find_descendants([top.pid])
            assert found[0] == top.pid
            assert all(found.index(parent_of(pid)) < found.index(pid) for pid in found[1:])
        finally:
            kill_trees([top.pid])
