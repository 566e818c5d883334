"""Format the messages on stderr when the program does not start (runtime spec 1.3, 1.6)."""

from __future__ import annotations

import shutil
import sys
import textwrap
import traceback
from typing import cast

from kimi.domain.errors import UsageError

USAGE = "Usage: kimi [OPTIONS] [COMMAND [ARGS]...]"

NO_LOGIN = (
    "There is no account login: run 'kimi login' or 'kimi setup' in a terminal to enter an API key; 'kimi logout'"
    " removes it."
)


def format_usage_panel(message: str, usage: str = USAGE, command: str = "kimi") -> str:
    """Format a usage error like the reference program: usage line, where to find help, and the message in a box.

    A word that is longer than the terminal is wide is never cut: the box grows, so that paths can be copied.
    """
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    lines = [
        line
        for paragraph in message.splitlines() or [""]
        for line in textwrap.wrap(paragraph, width - 4, break_long_words=False, break_on_hyphens=False) or [""]
    ]
    inner = max(width - 4, *(len(line) for line in lines))
    body = "\n".join(f"│ {line.ljust(inner)} │" for line in lines)
    box = f"╭─ Error {'─' * (inner - 6)}╮\n{body}\n╰{'─' * (inner + 2)}╯\n"
    return f"{usage}\nTry '{command} -h' for help.\n{_replace_undrawable(box)}"


def format_usage_error(error: UsageError) -> str:
    """Return the text for the box, with the option that the error is about, if any."""
    return f"Invalid value for {error.hint}: {error}" if error.hint else str(error)


def unwrap_single_cause(error: BaseException) -> BaseException:
    """Return the error inside of nested exception groups, as long as each holds only one."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(inner) != 1:
            break
        error = inner[0]
    return cast(BaseException, error)


def format_failure(error: BaseException, log_path: str, debug: bool) -> str:
    """Format a failure at start: its message, then the path of the log, or with `debug` the traceback."""
    message = str(error) or type(error).__name__
    if debug:
        return f"{message}\n{''.join(traceback.format_exception(error))}"
    return f"{message}\nThe log is in {log_path}\nRun again with --debug to see a traceback.\n"


def _replace_undrawable(box: str) -> str:
    """Return the box in ASCII if the encoding of stderr lacks line drawing characters."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    try:
        "╭─╮│╰╯".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return box.translate(str.maketrans("╭─╮│╰╯", "+-+|++"))
    return box
