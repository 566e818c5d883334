"""`kimi doctor`: what works, what does not, and how to mend it; one line each, or one JSON object."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel

from kimi.application.settings.flags import Flags, share_directory
from kimi.application.settings.settings import Settings
from kimi.domain.errors import KimiError
from kimi.interfaces.admin.doctor_checks import (
    Finding,
    check_endpoint,
    check_files,
    check_key,
    check_mcp_server,
    check_model,
    check_proxy,
    check_ripgrep,
    check_terminal,
)
from kimi.interfaces.bootstrap.config_file import resolve_config_path
from kimi.interfaces.process.log import hide_secrets, mask_secrets, start_logging
from kimi.interfaces.process.streams import take_streams
from kimi.interfaces.process.terminal_escape import escape_line

CHECKS_TIMEOUT_S: Final = 45.0
"""The longest time that all checks together may take: each has its own limit, and they run side by side."""

CLEANUP_TIMEOUT_S: Final = 14.0
"""How long what the checks have started may take to be gone."""

Check: TypeAlias = Callable[[], Awaitable[Finding]]
Show: TypeAlias = Callable[[Finding], None]


def run_doctor(flags: Flags, as_json: bool) -> int:
    """Check everything and print what was found; the result is 1 when something does not work, else 0.

    Only the endpoint and remote MCP servers need the network. Secrets are masked. Nothing waits for ever.
    """
    environ = os.environ
    share = share_directory(environ)
    streams = take_streams(share, protocol=False)
    start_logging(share, flags.debug)
    report = DoctorReport(as_json, lambda text: _write_line(streams.stdout_fd, text))
    watchdog = Watchdog(report)
    watchdog.start(CHECKS_TIMEOUT_S)
    checks = _build_checks(flags, environ)
    try:
        anyio.run(_run_checks, checks, report.add_finding, lambda: watchdog.start(CLEANUP_TIMEOUT_S))
    except KeyboardInterrupt:
        return 130
    finally:
        watchdog.stop()
    return report.finish()


def _build_checks(flags: Flags, environ: Mapping[str, str]) -> list[Check]:
    """In the order of the report. Without a configuration there is little to look at."""
    from kimi.interfaces.bootstrap.opening import load_settings

    share = share_directory(environ)
    try:
        settings = load_settings(flags, environ)
    except KimiError as error:
        advice = "Correct it, or the command line; 'kimi setup' needs a file that can be read."
        broken = Finding("configuration", "failed", str(error), advice)
        return [_make_async(lambda: broken), _make_async(lambda: check_terminal(environ))]
    hide_secrets(settings.secret_values)
    path = resolve_config_path(share, flags.config_file) if flags.config is None else "--config"
    return [
        _make_async(lambda: check_files(path, settings)),
        _make_async(lambda: check_model(settings)),
        _make_async(lambda: check_key(settings, environ)),
        _make_async(lambda: check_proxy(settings, environ)),
        lambda: check_endpoint(settings, environ),
        *_build_mcp_checks(settings, environ),
        lambda: check_ripgrep(settings, environ),
        _make_async(lambda: check_terminal(environ)),
    ]


def _build_mcp_checks(settings: Settings, environ: Mapping[str, str]) -> list[Check]:
    if not settings.mcp.servers:
        return [_make_async(lambda: Finding("mcp", "ok", "No servers are configured."))]
    return [lambda server=server: check_mcp_server(server, settings, environ) for server in settings.mcp.servers]


def _make_async(check: Callable[[], Finding]) -> Check:
    async def checked() -> Finding:
        await anyio.lowlevel.checkpoint()
        return check()

    return checked


async def _run_checks(checks: list[Check], show: Show, on_done: Callable[[], None]) -> None:
    """Run all side by side and show each finding as soon as those before it are there."""
    slots = [_FindingSlot() for _ in checks]
    async with anyio.create_task_group() as tasks:
        for check, slot in zip(checks, slots, strict=True):
            tasks.start_soon(slot.fill, check)
        for slot in slots:
            show(await slot.wait())
    on_done()


class _FindingSlot:
    """The place of a finding in the report."""

    def __init__(self) -> None:
        self._ready = anyio.Event()
        self._finding = Finding("", "failed", "")

    async def fill(self, check: Check) -> None:
        try:
            self._finding = await check()
        except Exception as error:  # a check that breaks is a finding, and the others go on
            self._finding = Finding("doctor", "failed", f"A check failed. {type(error).__name__}: {error}")
        self._ready.set()

    async def wait(self) -> Finding:
        await self._ready.wait()
        return self._finding


class DoctorReport:
    """Prints findings as lines as they come, or all as one object at the end."""

    def __init__(self, as_json: bool, print_text: Callable[[str], None]) -> None:
        self._as_json = as_json
        self._print = print_text
        self._found: list[Finding] = []

    def add_finding(self, finding: Finding) -> None:
        """One more finding."""
        shown = replace(finding, message=_clean_text(finding.message), advice=_clean_text(finding.advice))
        self._found.append(shown)
        if not self._as_json:
            said = shown.message if shown.message.endswith((".", "!", "?")) else f"{shown.message}."
            words = [f"{shown.status:<8}", f"{escape_line(shown.name)}:", said, shown.advice]
            self._print(" ".join(word for word in words if word))

    def finish(self) -> int:
        """Print what is left to print; gives the exit status."""
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
    """Ends the process when it hangs: with the report, as far as there is one."""

    def __init__(self, report: DoctorReport) -> None:
        self._report = report
        self._timer: threading.Timer | None = None
        self._complete = False

    def start(self, seconds: float) -> None:
        """Bark in so many seconds from now. The second start says that all findings are there."""
        self._complete = self._timer is not None
        self.stop()
        self._timer = threading.Timer(seconds, self._end_process)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """All is well."""
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
