"""Sessions as zip archives: found in any work directory, exported without being opened (runtime spec 1.6).

Nothing is locked: a session that another process has open is exported as it is at that moment.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from kimi.application.codec.envelope import replace_surrogates
from kimi.application.sessions.export_session import StoredFile, StoredSession
from kimi.domain.errors import InvalidSessionId, StoreFailed
from kimi.domain.history.session import check_session_id
from kimi.infrastructure.store.event_line import find_first_timestamp, find_last_timestamp
from kimi.infrastructure.store.files.disk import wrap_os_errors
from kimi.infrastructure.store.files.lines import read_lines_backward, read_lines_until
from kimi.infrastructure.store.jsonl import JsonlStore
from kimi.infrastructure.store.layout import (
    CONTEXT_FILE,
    EVENTS_FILE,
    LOCK_FILE,
    find_context_file,
    session_directory,
    sessions_directory,
)

MANIFEST = "manifest.json"


class ZipSessionArchives:
    """Archives of the sessions below a share directory; see the port `SessionArchives`."""

    def __init__(self, share_dir: str, work_dir: str) -> None:
        self._share_dir = share_dir
        self._work_dir = work_dir

    def last(self) -> str | None:
        """Return the session that `--continue` means."""
        return JsonlStore(self._share_dir, self._work_dir).last_session_id()

    def find(self, session_id: str) -> StoredSession | None:
        """Find a session in the work directory, then in all others in the order of their names. Raises StoreFailed."""
        try:
            check_session_id(session_id)
        except InvalidSessionId:
            return None
        for directory in self._find_directories():
            context = find_context_file(directory, session_id)
            if context is not None:
                with wrap_os_errors("read", context):
                    return _load_stored_session(session_id, session_directory(directory, session_id), context)
        return None

    def logs(self) -> Sequence[StoredFile]:
        """Return the files in `logs` in the share directory."""
        return list(_find_files(os.path.join(self._share_dir, "logs")))

    def write(self, path: str, manifest: bytes, files: Iterable[StoredFile]) -> None:
        """Write the archive beside `path`, then rename it. Raises StoreFailed."""
        try:
            _check_target(path)
            _write_archive(path, manifest, files)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreFailed(
                f"cannot write {replace_surrogates(path)}: {reason}; name another file with --output."
            ) from error

    def _find_directories(self) -> Iterator[str]:
        own = sessions_directory(self._share_dir, self._work_dir)
        yield own
        root = os.path.dirname(own)
        with suppress(OSError):
            yield from (os.path.join(root, name) for name in sorted(os.listdir(root)) if name != os.path.basename(own))


def _load_stored_session(session_id: str, directory: str, context: str) -> StoredSession:
    files = [file for file in _find_files(directory) if file.name != LOCK_FILE]
    if os.path.dirname(context) != directory:  # the oldest layout
        files.append(_stat_file(CONTEXT_FILE, context))
    first, last = _read_activity(os.path.join(directory, EVENTS_FILE))
    written = os.stat(context).st_mtime
    return StoredSession(session_id, files, first or written, last or first or written)


def _read_activity(events: str) -> tuple[float | None, float | None]:
    """Return when the first and the last event were recorded."""
    try:
        first = find_first_timestamp(read_lines_until(events, os.path.getsize(events)))
    except FileNotFoundError:
        return None, None
    return first, None if first is None else find_last_timestamp(read_lines_backward(events))


def _find_files(directory: str) -> Iterator[StoredFile]:
    """Yield all regular files, with paths relative to `directory`; links are not followed."""
    for parent, names, files in os.walk(directory):
        names.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with suppress(FileNotFoundError):  # removed during the walk
                    yield _stat_file(os.path.relpath(path, directory).replace(os.sep, "/"), path)


def _stat_file(name: str, path: str) -> StoredFile:
    found = os.stat(path)
    return StoredFile(replace_surrogates(name), path, found.st_size, found.st_mtime)


def _check_target(path: str) -> None:
    """Check that `path` is free or a regular file: a device, for instance, must not be replaced. Raises OSError."""
    if os.path.isdir(path):
        raise IsADirectoryError(0, "Is a directory")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(0, "Is not a regular file")


def _write_archive(path: str, manifest: bytes, files: Iterable[StoredFile]) -> None:
    """Write a private file next to `path` and rename it to `path`; remove it if anything fails."""
    descriptor, fresh = tempfile.mkstemp(prefix=".kimi-export-", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
                archive.writestr(MANIFEST, manifest)
                for member in files:
                    _add_member(archive, member)
            file.flush()
            os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def _add_member(archive: zipfile.ZipFile, member: StoredFile) -> None:
    """Add a file in blocks.

    A file that is gone is left out; of one that still grows, the part that was read is added.
    """
    try:
        source = open(member.path, "rb")  # noqa: SIM115 - what fails afterwards is no missing file
    except FileNotFoundError:
        return
    with source:
        entry = zipfile.ZipInfo.from_file(member.path, member.name, strict_timestamps=False)
        entry.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(entry, "w", force_zip64=member.size > 1 << 30) as target:
            shutil.copyfileobj(source, target, 1 << 20)
