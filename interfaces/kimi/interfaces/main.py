"""The console command. `--version` and `info` are answered here, before anything else is imported (R-01).

Clients ask for `info` before each start, and the parser of the command line costs a tenth of a second.
"""

import sys

from kimi.interfaces.version import __version__

INTERRUPTED = 130


def main() -> int:
    """Run the command line of this process; the result is the exit status (runtime spec 1.4)."""
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the program is still being loaded
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"kimi, version {__version__}\n")
        return 0
    if arguments in (["info"], ["info", "--json"]):
        from kimi.interfaces.info import info_text

        sys.stdout.write(f"{info_text('--json' in arguments)}\n")
        return 0
    from kimi.interfaces import lean_start

    lean_start.begin()
    from kimi.interfaces.cli import run

    return run(arguments)
