"""The log of the process: one file per day, shared by several processes, without secrets (runtime spec 2.8)."""

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
    """Return the path of the log file in a share directory."""
    return os.path.join(share, "logs", "kimi.log")


def local_date(seconds: float | None = None) -> str:
    """Return the local date of a time in Unix seconds (None: now) as YYYY-MM-DD."""
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def set_session_id(session_id: str) -> None:
    """Name the session in all further log records of the current task and of the tasks that it starts."""
    _session_id.set(session_id)


def start_logging(share: str, debug: bool, secrets: Iterable[str] = ()) -> None:
    """Write all records to the log file: our own from INFO, or from TRACE with `debug`; those of libraries from INFO.

    Values of `secrets` are masked; `hide_secrets` adds to them. Errors of the log are never raised. A second call
    replaces the handler of the first.
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
    """Mask these values too, in all later records."""
    values = frozenset(secrets)
    for handler in _find_log_handlers():
        handler.add_secrets(values)


def mask_secrets(text: str) -> str:
    """Mask secrets in `text` as in the log, for text that is written elsewhere."""
    for handler in _find_log_handlers():
        text = handler.mask_secrets(text)
    return text


def _find_log_handlers() -> list[DailyLogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, DailyLogHandler)]


class DailyLogHandler(logging.Handler):
    """Appends records to a file that several processes may share; starts a new file each day."""

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
        """Write one record; drop it if it cannot be formatted or written."""
        with suppress(Exception):
            self._roll_over()
            line = _escape_control(self.mask_secrets(self.format(record))) + "\n"
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))

    def add_secrets(self, secrets: frozenset[str]) -> None:
        """Mask these values as well."""
        self._secrets |= secrets
        self._pattern = _compile_secrets_pattern(self._secrets)

    def mask_secrets(self, text: str) -> str:
        """Return `text` with its secrets masked."""
        return self._pattern.sub("***", text) if self._pattern else text

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._descriptor)
        super().close()

    def _roll_over(self) -> None:
        """Open the file of a new day; point stdout and stderr at it too if they led to the old file."""
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
    """Formats time, level, session, source and message; a traceback follows on separate lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s | %(levelname)-5s | %(session)s | %(name)s | %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.__dict__["session"] = _session_id.get()
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the first lines; further lines of a message are indented, so that none can pass for a record."""
        record.message = record.message.replace("\n", "\n\t")
        return super().formatMessage(record)


def _escape_control(text: str) -> str:
    """Return `text` so that it cannot control the terminal of whoever reads the log."""
    if text.replace("\n", "").isprintable():
        return text
    from kimi.interfaces.process.terminal_escape import escape_text  # start-up time

    return escape_text(text)


def _compile_secrets_pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches each secret, plain or escaped.

    A short secret matches only as a whole word; else the log would be unreadable.
    """
    forms = {form for value in secrets if value for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1])}
    longest_first = sorted(forms, key=len, reverse=True)
    parts = [re.escape(form) if len(form) >= 8 else rf"(?<!\w){re.escape(form)}(?!\w)" for form in longest_first]
    return re.compile("|".join(parts)) if parts else None


# --- files -----------------------------------------------------------------------------------------------------


def open_log(path: str, today: str) -> int:
    """Open the log for appending; return its descriptor, or one of the null device if the log cannot be opened."""
    try:
        for directory in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        _archive_old_log(path, today)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError):
        # The reference program leaves this file readable by all users.
        os.chmod(path, 0o600)
    return descriptor


def _archive_old_log(path: str, today: str) -> None:
    """Rename a log of an earlier day, unless another process has done so, and remove the oldest logs."""
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
