"""What is specific to files of this machine: crashes, links swapped in, rights (tools spec 2.1, 3.4)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kimi.application.ports import FileChanged
from kimi.infrastructure.workspace.files import BLOCK_BYTES, open_file, read_block, stat_file, write_file

CRASH = """
import os, sys
from kimi.infrastructure.workspace.files import stat_file, write_file

def crash(event, arguments):
    if event == sys.argv[2]:
        os._exit(9)

path = sys.argv[1]
old = stat_file(path)
sys.addaudithook(crash)
write_file(path, b"new" * 1000, old)
"""


@pytest.mark.spec("T-69")
def test_a_crash_before_the_rename_leaves_the_old_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "a.sh"
    path.write_bytes(b"old")
    path.chmod(0o751)
    search = os.pathsep.join(entry for entry in sys.path if entry)
    environ = {**os.environ, "PYTHONPATH": search}
    crashed = subprocess.run([sys.executable, "-c", CRASH, str(path), "os.rename"], env=environ, check=False)
    assert crashed.returncode == 9
    assert path.read_bytes() == b"old"
    assert path.stat().st_mode & 0o7777 == 0o751
    finished = subprocess.run([sys.executable, "-c", CRASH, str(path), "no.such.event"], env=environ, check=False)
    assert finished.returncode == 0
    assert path.read_bytes() == b"new" * 1000
    assert path.stat().st_mode & 0o7777 == 0o751


def test_link_above_the_file_is_always_refused(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    with pytest.raises(FileChanged):
        write_file(str(root / "link" / "a.txt"), b"x", None)
    with pytest.raises(FileChanged):
        write_file(str(root / "real" / ".." / "real" / "a.txt"), b"x", None)
    assert list((root / "real").iterdir()) == []


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    path = str(tmp_path.resolve() / "new")
    assert write_file(path, b"", None).mode == usual.stat().st_mode & 0o7777


def test_special_bits_and_owner_are_kept(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "a"
    path.write_bytes(b"old")
    if os.geteuid() == 0:
        os.chown(path, 1234, 1234)
    path.chmod(0o2755)
    before = path.stat()
    write_file(str(path), b"new", stat_file(str(path)))
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    path = str(tmp_path.resolve() / ("n" * 255))
    write_file(path, b"one", None)
    assert write_file(path, b"three", stat_file(path)).size == 5


def test_file_in_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        write_file(str(tmp_path.resolve() / "file" / "a.txt"), b"x", None)


def test_pipe_cannot_be_written(tmp_path: Path) -> None:
    path = str(tmp_path.resolve() / "pipe")
    os.mkfifo(path)
    with pytest.raises(OSError, match="Not a regular file"):
        write_file(path, b"x", stat_file(path))


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = str(tmp_path.resolve() / "a" / "b" / "c")
    before = os.listdir("/proc/self/fd")
    write_file(path, b"x", None)
    with pytest.raises(FileChanged):
        write_file(path, b"x", None)
    with pytest.raises(IsADirectoryError):
        open_file(str(tmp_path))
    assert os.listdir("/proc/self/fd") == before


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        stat_file(str(tmp_path / "a"))


def test_blocks_are_filled_from_short_reads() -> None:
    """Files of `/proc` have no size and give one page at a time."""
    descriptor = open_file("/proc/self/smaps")
    try:
        assert 4_096 < len(read_block(descriptor)) < BLOCK_BYTES
    finally:
        os.close(descriptor)
