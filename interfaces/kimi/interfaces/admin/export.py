"""`kimi export`: a session as a zip archive, or with `--html` as a page to read (runtime spec 1.6)."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from typing import TypeAlias

from kimi.application.sessions.export_session import SessionArchives, export_session
from kimi.application.settings.flags import share_directory
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.info import WIRE_PROTOCOL_VERSION
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_text
from kimi.interfaces.version import __version__

_NO_HISTORY = "no previous session found for the working directory."
_NO_ANSWER = "nobody is there to confirm; name the session, or say --yes to export the last one."
_CANCELLED = "Nothing was exported.\n"
_PRIVACY = "Logs are in the archive: look through it before you pass it on, it may hold paths and other private data.\n"


WriteSession: TypeAlias = Callable[[SessionArchives, str, "str | None"], int]
"""Writes the session with this id to the file that is named, if one is; returns the exit status."""


def run_export(session_id: str | None, output: str | None, yes: bool, work_dir: str, as_page: bool = False) -> int:
    """Export a session, without an id the last one of the work directory; return the exit status."""
    from kimi.interfaces.bootstrap.store import build_session_archives

    archives = build_session_archives(share_directory(os.environ), work_dir)
    write = _export_page if as_page else _export_session
    try:
        if session_id is not None:
            return write(archives, session_id, output)
        return _export_last(archives, output, yes, write)
    except KimiError as error:
        return _report_error(str(error))


def _export_last(archives: SessionArchives, output: str | None, yes: bool, write: WriteSession) -> int:
    last = archives.last()
    if last is None:
        return _report_error(_NO_HISTORY)
    if not yes:
        write_stderr(f"Export the last session of this directory, {last}? [y/N]: ")
        answer = sys.stdin.readline()
        if not answer:
            write_stderr("\n")
            return _report_error(_NO_ANSWER)
        if answer.strip().lower() not in ("y", "yes"):
            write_stderr(_CANCELLED)
            return 0
    return write(archives, last, output)


def _export_page(archives: SessionArchives, session_id: str, output: str | None) -> int:
    """Write the page of a session; nothing of it is kept in memory but one turn."""
    session = archives.find(session_id)
    if session is None:
        return _report_error(f"session '{session_id}' not found.")
    from kimi.interfaces.admin.page.page_file import write_session_page  # only for a page

    path = os.path.abspath(output or f"session-{session.id}.html")
    write_session_page(session, path, share_directory(os.environ), os.environ)
    _print_path(path)
    return 0


def _export_session(archives: SessionArchives, session_id: str, output: str | None) -> int:
    done = export_session(archives, session_id, output, program_info=_collect_versions(), now=time.time())
    if done is None:
        return _report_error(f"session '{session_id}' not found.")
    if done.with_logs:
        write_stderr(_PRIVACY)
    _print_path(done.path)
    return 0


def _print_path(written: str) -> None:
    path = os.fsencode(written)
    if sys.stdout.isatty():  # a program that reads the path needs it as it is
        path = escape_text(os.fsdecode(path)).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(path + b"\n")
    sys.stdout.flush()


def _collect_versions() -> dict[str, str]:
    return {
        "kimi_cli_version": __version__,
        "wire_protocol_version": WIRE_PROTOCOL_VERSION,
        "python_version": platform.python_version(),
        "os": platform.platform(),
    }


def _report_error(message: str) -> int:
    write_stderr(f"Error: {message}\n")
    return 1
