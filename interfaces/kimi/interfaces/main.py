"""The console command; it answers `--version` and `info` before anything else is imported (R-01).

Clients call `info` before each start, and the parser of the command line takes a tenth of a second to import. What it
need not read, as the line that editors start the program with, goes without it (R-330).
"""

import os
import sys

from kimi.interfaces.version import __version__

INTERRUPTED_STATUS = 130


def main() -> int:
    """Run the command line of this process; return the exit status (runtime spec 1.4)."""
    try:
        return _run_command(sys.argv[1:])
    except KeyboardInterrupt:  # while the program is still being loaded
        return INTERRUPTED_STATUS


def _run_command(arguments: list[str]) -> int:
    if "mcp" in arguments or any(one.partition("=")[0] in ("--config", "--mcp-config") for one in arguments):
        from kimi.interfaces.process.self_protection import hide_option_values

        hide_option_values()
    if arguments in (["--version"], ["-V"]):
        return _write_answer(f"kimi, version {__version__}\n")
    if arguments in (["info"], ["info", "--json"]):
        from kimi.interfaces.admin.info import format_info

        return _write_answer(f"{format_info('--json' in arguments)}\n")
    from kimi.interfaces.process import startup_tuning

    startup_tuning.begin()
    from kimi.interfaces.cli.plain_start import parse_plain_start

    if (flags := parse_plain_start(arguments)) is not None:
        from kimi.interfaces.cli.start import start_driver

        return start_driver(flags, os.environ)
    from kimi.interfaces.cli.app import run

    return run(arguments)


def _write_answer(text: str) -> int:
    """Write and flush the answer; return the exit status.

    After an error stdout is replaced, so that the interpreter does not fail again when it flushes at its end.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr.write(f"The answer cannot be written: {error.strerror}.\n")
        return 1
    return 0
