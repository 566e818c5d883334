"""`kimi doctor`: report what works, what does not, and how to fix it, as lines or one JSON object."""

from __future__ import annotations

import codecs
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Final

import anyio

from kimi.application.admin.doctor import Check, build_checks, build_checks_without_settings, run_checks
from kimi.application.admin.doctor_checks import Finding, TerminalKind
from kimi.application.settings.flags import Flags, share_directory
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES
from kimi.interfaces.bootstrap.admin import build_configuration_file, build_doctor_probes
from kimi.interfaces.process.log import hide_secrets, mask_secrets, start_logging
from kimi.interfaces.process.streams import take_streams
from kimi.interfaces.process.terminal_escape import escape_line

CHECKS_TIMEOUT_S: Final = 45.0
"""Seconds that all checks together may take. Each has its own limit, and they run concurrently."""

CLEANUP_TIMEOUT_S: Final = 14.0
"""Seconds that the processes and connections of the checks have to end."""


def run_doctor(flags: Flags, as_json: bool) -> int:
    """Check everything and print the findings; return 1 when something does not work, else 0.

    Only the endpoint and remote MCP servers need the network. Secrets are masked. A watchdog ends checks that hang.
    """
    environ = os.environ
    share = share_directory(environ)
    streams = take_streams(share, protocol=False)
    start_logging(share, flags.debug)
    report = DoctorReport(as_json, lambda text: _write_line(streams.stdout_fd, text))
    watchdog = Watchdog(report)
    watchdog.start(CHECKS_TIMEOUT_S)
    checks = _build_checks(flags, environ)

    async def run() -> None:
        await run_checks(checks, report.add_finding)
        watchdog.start(CLEANUP_TIMEOUT_S)  # leaving the event loop waits for the threads of the checks

    try:
        anyio.run(run)
    except KeyboardInterrupt:
        return 130
    finally:
        watchdog.stop()
    return report.finish()


def _build_checks(flags: Flags, environ: Mapping[str, str]) -> list[Check]:
    from kimi.interfaces.bootstrap.start import load_settings

    find_terminal = partial(_find_terminal, environ)
    try:
        settings = load_settings(flags, environ)
    except KimiError as error:
        return build_checks_without_settings(error, find_terminal)
    hide_secrets(settings.secret_values)
    path = "--config"
    if flags.config is None:
        path = build_configuration_file(settings.share_dir, flags.config_file).path
    probes = build_doctor_probes(settings, environ)
    return build_checks(path, settings, probes, find_terminal, API_KEY_VARIABLES, environ)


def _find_terminal(environ: Mapping[str, str]) -> TerminalKind | None:
    """Return the terminal of this process; None when stdin or stdout is not a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    encoding = codecs.lookup(sys.stdout.encoding or "ascii").name
    return TerminalKind(environ.get("TERM", ""), encoding, os.name == "nt")


class DoctorReport:
    """Prints each finding as a line when it is added, or all as one JSON object at the end."""

    def __init__(self, as_json: bool, print_text: Callable[[str], None]) -> None:
        self._as_json = as_json
        self._print = print_text
        self._found: list[Finding] = []

    def add_finding(self, finding: Finding) -> None:
        """Add a finding; as a line it is printed at once."""
        shown = replace(finding, message=_clean_text(finding.message), advice=_clean_text(finding.advice))
        self._found.append(shown)
        if not self._as_json:
            sentence = shown.message if shown.message.endswith((".", "!", "?")) else f"{shown.message}."
            words = [f"{shown.status:<8}", f"{escape_line(shown.name)}:", sentence, shown.advice]
            self._print(" ".join(word for word in words if word))

    def finish(self) -> int:
        """Print the rest of the report; return the exit status."""
        failed = sum(finding.status == "failed" for finding in self._found)
        if self._as_json:
            self._print(json.dumps({"ok": not failed, "checks": [asdict(finding) for finding in self._found]}))
        elif failed:
            self._print(f"{failed} of {len(self._found)} checks failed.")
        else:
            self._print("Everything that is needed works.")
        return 1 if failed else 0


def _clean_text(text: str) -> str:
    return escape_line(mask_secrets(text), limit=600)


class Watchdog:
    """Ends a process that hangs, after it has printed the report so far.

    It is a thread with a timer: a check that blocks the event loop cannot be cancelled.
    """

    def __init__(self, report: DoctorReport) -> None:
        self._report = report
        self._timer: threading.Timer | None = None
        self._complete = False

    def start(self, seconds: float) -> None:
        """Start the timer again. The second call means that the findings are complete."""
        self._complete = self._timer is not None
        self.stop()
        self._timer = threading.Timer(seconds, self._end_process)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """Stop the timer: the process is not ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _end_process(self) -> None:
        if not self._complete:
            self._report.add_finding(
                Finding("doctor", "failed", f"The other checks did not end within {CHECKS_TIMEOUT_S:.0f} s.")
            )
        os._exit(self._report.finish())


def _write_line(descriptor: int, text: str) -> None:
    rest = f"{text}\n".encode("utf-8", "backslashreplace")
    while rest:
        rest = rest[os.write(descriptor, rest) :]
