"""What is said on stderr when the program does not start (runtime spec 1.3, 1.6), and the conflicts between options."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from kimi.application.settings.flags import Flags
from kimi.domain.errors import InvalidSessionId, UsageError

USAGE = "Usage: kimi [OPTIONS] [COMMAND [ARGS]...]"

NOT_PROVIDED: Mapping[str, str] = {
    "term": "'kimi term' is not provided; use 'kimi --wire' with a client of your choice.",
    "plugin": "'kimi plugin' is not provided; a client can add tools over the wire protocol instead.",
    "web": "'kimi web' is not provided; use 'kimi --wire' with a client of your choice.",
    "vis": "'kimi vis' is not provided; the recorded events are plain text in 'wire.jsonl' of each session.",
    "__background-task-worker": "'kimi __background-task-worker' is not part of this version.",
    "__web-worker": "'kimi __web-worker' is not provided.",
}
"""Commands of the reference that fail with a sentence instead of being taken for a prompt (R-08)."""

ACP_IS_DEPRECATED = "'--acp' is deprecated; use 'kimi acp'.\n"

NO_LOGIN = (
    "There is no account login: API keys are entered with 'kimi setup' and removed with 'kimi setup --remove-key'."
)


def format_usage_panel(message: str, usage: str = USAGE, command: str = "kimi") -> str:
    """A usage error as the reference shows it: usage line, where help is, and the message in a box.

    A word that is longer than the terminal is never cut: the box grows instead, so that paths can be copied.
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
    """The text for the box: with the option it is about, if it is about one."""
    return f"Invalid value for {error.hint}: {error}" if error.hint else str(error)


def unwrap_single_cause(error: BaseException) -> BaseException:
    """The error inside the groups that task groups wrap around it, as long as it is the only one."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(inner) != 1:
            break
        error = inner[0]
    return cast(BaseException, error)


def format_failure(error: BaseException, log_path: str, debug: bool) -> str:
    """A failure before the program runs: its message, then where to look further, or with `--debug` its traceback."""
    message = str(error) or type(error).__name__
    if debug:
        return f"{message}\n{''.join(traceback.format_exception(error))}"
    return f"{message}\nThe log is in {log_path}\nRun again with --debug to see a traceback.\n"


def check_option_conflicts(flags: Flags, used_options: Mapping[str, bool]) -> None:
    """Refuse options that exclude each other or need another mode; `given` tells which were on the command line.

    Raises:
        UsageError: the first of the rows of runtime spec 1.3 that applies.
    """
    _check_quiet(flags, used_options)
    for group in (
        ("--print", "--acp", "--wire"),
        ("--agent", "--agent-file"),
        ("--continue", "--session"),
        ("--config", "--config-file"),
    ):
        active = [option for option in group if used_options[option]]
        if len(active) > 1:
            raise UsageError(f"Cannot combine {', '.join(active)}.", active[0])
    _check_text_options(flags)
    _check_mode(flags, used_options)


def _check_quiet(flags: Flags, used_options: Mapping[str, bool]) -> None:
    if not used_options["--quiet"]:
        return
    if used_options["--acp"] or used_options["--wire"]:
        raise UsageError("Quiet mode cannot be combined with ACP or Wire UI", "--quiet")
    if flags.output_format == "stream-json":
        raise UsageError("Quiet mode implies `--output-format text`", "--quiet")


def _check_text_options(flags: Flags) -> None:
    if flags.prompt == "":
        raise UsageError("Prompt cannot be empty", "--prompt")
    if flags.config == "":
        raise UsageError("Config cannot be empty", "--config")
    if flags.session is not None:
        # Late: help and the refusals need no part of the domain.
        from kimi.domain.history.session import check_session_id

        try:
            check_session_id(flags.session)
        except InvalidSessionId as error:
            raise UsageError(str(error), "--session") from None


def _check_mode(flags: Flags, used_options: Mapping[str, bool]) -> None:
    if flags.ui != "print":
        if used_options["--input-format"]:
            raise UsageError("Input format is only supported for print UI", "--input-format")
        if used_options["--output-format"]:
            raise UsageError("Output format is only supported for print UI", "--output-format")
        if used_options["--final-message-only"]:
            raise UsageError(
                "Final-message-only output is only supported for print UI",
                "--final-message-only",
            )
    if flags.pick_session and flags.ui != "shell":
        raise UsageError("--session without a session ID is only supported for shell UI", "--session")


def _replace_undrawable(box: str) -> str:
    """The box in ASCII when the encoding of stderr lacks line drawing."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    try:
        "╭─╮│╰╯".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return box.translate(str.maketrans("╭─╮│╰╯", "+-+|++"))
    return box


def write_stderr(text: str, descriptor: int = 2) -> None:
    """Write all of `text` to standard error, or a copy of it; a reader that went away is ignored.

    Characters that the encoding of the terminal lacks are escaped.
    """
    rest = text.encode(getattr(sys.stderr, "encoding", None) or "utf-8", "backslashreplace")
    with suppress(OSError):
        while rest:
            rest = rest[os.write(descriptor, rest) :]
