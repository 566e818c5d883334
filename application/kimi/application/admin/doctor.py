"""Use-case doctor: run all checks concurrently and report their findings in a fixed order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import anyio
import anyio.lowlevel

from kimi.application.admin.doctor_checks import (
    DoctorProbes,
    Finding,
    FindTerminal,
    KeyVariables,
    LoadPlugins,
    check_endpoint,
    check_files,
    check_key,
    check_libraries,
    check_mcp_server,
    check_model,
    check_plugins,
    check_proxy,
    check_ripgrep,
    check_sandbox,
    check_terminal,
    report_broken_configuration,
)
from kimi.application.settings.settings import McpSettings, Settings
from kimi.domain.errors import KimiError

Check: TypeAlias = Callable[[], Awaitable[Finding]]
ShowFinding: TypeAlias = Callable[[Finding], None]


def build_checks(
    path: str,
    settings: Settings,
    probes: DoctorProbes,
    find_terminal: FindTerminal,
    key_variables: KeyVariables,
    environ: Mapping[str, str],
) -> list[Check]:
    """Return the checks of a configuration, which was read from `path`, in the order of the report."""
    model = settings.model
    return [
        _make_async(lambda: check_files(path, settings.share_dir, probes)),
        _make_async(lambda: check_model(model)),
        _make_async(lambda: check_key(model, key_variables, environ)),
        _make_async(lambda: check_proxy(model, probes.resolve_proxy)),
        lambda: check_endpoint(model, key_variables, probes),
        *_build_mcp_checks(settings.mcp, probes),
        *_build_plugin_checks(probes.load_plugins),
        *([_make_async(lambda: check_libraries(missing))] if (missing := probes.list_missing_libraries()) else []),
        lambda: check_ripgrep(probes.find_ripgrep),
        lambda: check_sandbox(settings.sandbox.mode, probes.find_sandbox),
        _make_async(lambda: check_terminal(find_terminal())),
    ]


def build_checks_without_settings(error: KimiError, find_terminal: FindTerminal) -> list[Check]:
    """Return the checks that are possible when the configuration cannot be read because of `error`."""
    return [
        _make_async(lambda: report_broken_configuration(error)),
        _make_async(lambda: check_terminal(find_terminal())),
    ]


def _build_mcp_checks(settings: McpSettings, probes: DoctorProbes) -> list[Check]:
    if not settings.servers:
        return [_make_async(lambda: Finding("mcp", "ok", "No servers are configured."))]
    timeout_ms = settings.connect_timeout_ms
    return [
        lambda server=server: check_mcp_server(server, timeout_ms, probes.count_tools) for server in settings.servers
    ]


def _build_plugin_checks(load_plugins: LoadPlugins | None) -> list[Check]:
    return [] if load_plugins is None else [lambda: check_plugins(load_plugins)]


def _make_async(check: Callable[[], Finding]) -> Check:
    async def run_check() -> Finding:
        await anyio.lowlevel.checkpoint()
        return check()

    return run_check


async def run_checks(checks: Sequence[Check], show: ShowFinding) -> None:
    """Run all checks concurrently; show each finding as soon as those before it have been shown."""
    slots = [_FindingSlot() for _ in checks]
    async with anyio.create_task_group() as tasks:
        for check, slot in zip(checks, slots, strict=True):
            tasks.start_soon(slot.fill, check)
        for slot in slots:
            show(await slot.wait())


class _FindingSlot:
    """The slot of a finding in the report, which keeps the order of the checks whichever ends first."""

    def __init__(self) -> None:
        self._ready = anyio.Event()
        self._finding = Finding("", "failed", "")

    async def fill(self, check: Check) -> None:
        try:
            self._finding = await check()
        except Exception as error:  # a check that raises is a finding; the other checks continue
            self._finding = Finding("doctor", "failed", f"A check failed. {type(error).__name__}: {error}")
        self._ready.set()

    async def wait(self) -> Finding:
        await self._ready.wait()
        return self._finding
