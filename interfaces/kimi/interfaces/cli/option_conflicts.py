"""Check for options that exclude each other or need another mode (runtime spec 1.3)."""

from __future__ import annotations

from collections.abc import Mapping

from kimi.application.settings.flags import Flags
from kimi.domain.errors import InvalidSessionId, UsageError


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
