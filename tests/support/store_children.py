"""The paths of the store on disk, and child processes that use it."""

import subprocess
import sys
from pathlib import Path

from kimi.infrastructure.store.jsonl import JsonlStore
from kimi.infrastructure.store.layout import sessions_directory
from kimi.infrastructure.store.session_files import JsonlSession

WORK_DIR = "/srv/app"


def store_at(share: Path, work_dir: str = WORK_DIR, wait_s: float = 0.1) -> JsonlStore:
    return JsonlStore(str(share), work_dir, lock_wait_s=wait_s)


def session_path(share: Path, session_id: str = "one") -> Path:
    return Path(sessions_directory(str(share), WORK_DIR)) / session_id


async def opened(share: Path, session_id: str = "one") -> JsonlSession:
    files = await store_at(share).open(session_id)
    assert files is not None
    return files


def write_session(share: Path, context: bytes = b"", events: bytes | None = None, session_id: str = "one") -> Path:
    """Write a session as another program leaves it; return its directory."""
    directory = session_path(share, session_id)
    directory.mkdir(parents=True)
    (directory / "context.jsonl").write_bytes(context)
    if events is not None:
        (directory / "wire.jsonl").write_bytes(events)
    return directory


def start_child(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python process with the source roots on its path; the program prints a line when it is ready."""
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end_child(child: subprocess.Popen[str]) -> None:
    """End the child if it still runs, and close its pipes."""
    child.kill()
    child.communicate()
