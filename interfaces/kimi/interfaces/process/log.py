"""The log of the process: one file a day, which several processes may share, without secrets (runtime spec 2.8)."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar

TRACE_LEVEL = 5
"""The level of `--debug`, below DEBUG."""

KEPT_LOG_FILES = 10

_session_id: ContextVar[str] = ContextVar("session", default="-")
_DATED_LOG_PATTERN = re.compile(r"kimi\.\d{4}-\d\d-\d\d\.log")


def log_path(share: str) -> str:
    """The log file of a share directory."""
    return os.path.join(share, "logs", "kimi.log")


def local_date(seconds: float | None = None) -> str:
    """The date of a moment in Unix seconds (now, if None) where the user is, as YYYY-MM-DD."""
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def set_session_id(session_id: str) -> None:
    """Name the session of the current task, and of those it starts, in every log record from now on."""
    _session_id.set(session_id)


def start_logging(share: str, debug: bool, secrets: Iterable[str] = ()) -> None:
    """Send all records to the log file: ours from INFO, with `debug` from TRACE, those of libraries from INFO.

    Values of `secrets` are masked; `hide_secrets` adds to them. Whatever goes wrong with the log, nothing is raised.
    Called again, it replaces what it set up before.
    """
    logging.addLevelName(TRACE_LEVEL, "TRACE")
    root = logging.getLogger()
    for handler in _find_log_handlers():
        root.removeHandler(handler)
        handler.close()
    root.addHandler(DailyLogHandler(log_path(share)))
    root.setLevel(logging.INFO)
    logging.getLogger("kimi").setLevel(TRACE_LEVEL if debug else logging.INFO)
    hide_secrets(secrets)


def hide_secrets(secrets: Iterable[str]) -> None:
    """Mask these values too, in every later record."""
    values = frozenset(secrets)
    for handler in _find_log_handlers():
        handler.add_secrets(values)


def mask_secrets(text: str) -> str:
    """`text` as the log would show it, for what goes elsewhere."""
    for handler in _find_log_handlers():
        text = handler.mask_secrets(text)
    return text


def _find_log_handlers() -> list[DailyLogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, DailyLogHandler)]


class DailyLogHandler(logging.Handler):
    """Appends records to one file, which several processes may share; each day starts a new one."""

    def __init__(self, path: str, today: Callable[[], str] = local_date) -> None:
        super().__init__()
        self.setFormatter(_RecordFormatter())
        self._path = path
        self._today = today
        self._current_date = today()
        self._descriptor = open_log(path, self._current_date)
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a log that cannot be written, or a record that cannot be formatted, is dropped."""
        with suppress(Exception):
            self._roll_over()
            line = self.mask_secrets(self.format(record)) + "\n"
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))

    def add_secrets(self, secrets: frozenset[str]) -> None:
        """Mask these values as well."""
        self._secrets |= secrets
        self._pattern = _compile_secrets_pattern(self._secrets)

    def mask_secrets(self, text: str) -> str:
        """`text` without secrets."""
        return self._pattern.sub("***", text) if self._pattern else text

    def close(self) -> None:
        """Give the file free."""
        with suppress(OSError):
            os.close(self._descriptor)
        super().close()

    def _roll_over(self) -> None:
        """At the first record of a day go over to its file, with those public descriptors that led to the old one."""
        today = self._today()
        if today == self._current_date:
            return
        self._current_date = today
        old, new = self._descriptor, open_log(self._path, today)
        for descriptor in (1, 2):
            if _is_same_file(descriptor, old):
                os.dup2(new, descriptor)
        self._descriptor = new
        os.close(old)


class _RecordFormatter(logging.Formatter):
    """Time, level, session, source, message; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s | %(levelname)-5s | %(session)s | %(name)s | %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.__dict__["session"] = _session_id.get()
        return super().format(record)


def _compile_secrets_pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Matches each secret, plain or escaped; a short one as a whole word only, or the log would be unreadable."""
    forms = {form for value in secrets if value for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1])}
    longest_first = sorted(forms, key=len, reverse=True)
    parts = [re.escape(form) if len(form) >= 8 else rf"(?<!\w){re.escape(form)}(?!\w)" for form in longest_first]
    return re.compile("|".join(parts)) if parts else None


# --- files -----------------------------------------------------------------------------------------------------


def open_log(path: str, today: str) -> int:
    """A descriptor that appends to the log, or one to nothing when that cannot be had."""
    try:
        for directory in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        _archive_old_log(path, today)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError):
        # The reference leaves this file readable for everybody.
        os.chmod(path, 0o600)
    return descriptor


def _archive_old_log(path: str, today: str) -> None:
    """Rename a log of an earlier day, unless another process did, and remove the oldest ones."""
    if not os.path.exists(path):
        return
    written = local_date(os.stat(path).st_mtime)
    dated = os.path.join(os.path.dirname(path), f"kimi.{written}.log")
    if written == today or os.path.exists(dated):
        return
    with suppress(OSError):
        os.rename(path, dated)
        _remove_oldest_logs(os.path.dirname(path))


def _remove_oldest_logs(directory: str) -> None:
    ours = sorted(name for name in os.listdir(directory) if _DATED_LOG_PATTERN.fullmatch(name))
    for name in ours[:-KEPT_LOG_FILES]:
        with suppress(OSError):
            os.unlink(os.path.join(directory, name))


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
