"""Options: a value that may be omitted, and those that exclude each other or need another mode (runtime spec 1.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kimi.application.settings.flags import Flags
from kimi.domain.errors import InvalidSessionId, UsageError

NOT_PROVIDED: Final[Mapping[str, str]] = {
    "term": "'kimi term' is not provided; run 'kimi' for the shell, or give 'kimi acp' to a terminal client "
    "of the Agent Client Protocol (docs/acp.md, In a terminal).",
    "vis": "'kimi vis' is not provided; 'kimi export --html' writes a session into one page for any browser.",
    "__background-task-worker": "'kimi __background-task-worker' is not part of this version.",
    "__web-worker": "'kimi __web-worker' is not provided.",
}
"""Commands of the reference program that fail with a message instead of being read as a prompt (R-08)."""

_SESSION_OPTIONS = frozenset({"--session", "--resume", "-S", "-r"})


def with_session_value(arguments: Sequence[str], options_without_value: frozenset[str]) -> list[str]:
    """Return `arguments` with an empty value after each `--session` (or alias) of the root that has none.

    The value of this option may be omitted at the end of the line and before another option, which the parser does not
    support. Arguments after the name of a command stay as they are.
    """
    result: list[str] = []
    rest = list(arguments)
    while rest and _is_option(rest[0]) and rest[0] != "--":
        argument = rest.pop(0)
        result.append(argument)
        option = _find_valueless_option(argument, options_without_value)
        if option in _SESSION_OPTIONS and (not rest or _is_option(rest[0])):
            result.append("")
        elif option is not None and rest:
            result.append(rest.pop(0))
    return result + rest


def _find_valueless_option(argument: str, options_without_value: frozenset[str]) -> str | None:
    """Return the option in `argument` whose value is the next argument: `--x`, `-x`, or the last of `-abx`."""
    if argument.startswith("--"):
        return None if "=" in argument or argument in options_without_value else argument
    for position, letter in enumerate(argument[1:], start=1):
        if f"-{letter}" not in options_without_value:
            return f"-{letter}" if position == len(argument) - 1 else None
    return None


def _is_option(argument: str) -> bool:
    return len(argument) > 1 and argument.startswith("-")


def check_option_conflicts(flags: Flags, used_options: Mapping[str, bool]) -> None:
    """Refuse options that exclude each other or need another mode.

    `used_options` says for each option whether it is on the command line. Raises UsageError for the first row of
    runtime spec 1.3 that applies.
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
        # start-up time: help and most usage errors need no part of the domain
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
    if flags.no_slash_commands and flags.ui == "shell":
        message = "--no-slash-commands is for programs: use it with --print, --wire or `kimi acp`"
        raise UsageError(message, "--no-slash-commands")
    if flags.here and (flags.session is None or not flags.must_exist or flags.ui not in ("shell", "print")):
        raise UsageError("--here is for --resume with a session ID, in the shell and print UI", "--here")
    if flags.pick_session and flags.ui != "shell":
        raise UsageError("--session without a session ID is only supported for shell UI", "--session")
