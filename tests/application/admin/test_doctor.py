"""Which checks `kimi doctor` runs, and that their findings come in order."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import anyio
import anyio.lowlevel
import pytest

from kimi.application.admin.doctor import Check, build_checks, build_checks_without_settings, run_checks
from kimi.application.admin.doctor_checks import DoctorProbes, Finding, FoundSandbox
from kimi.application.ports import ChatModel
from kimi.application.settings.settings import McpServer, McpSettings, Settings
from kimi.domain.errors import ConfigError

pytestmark = pytest.mark.anyio


def find_nothing(*asked: str) -> None:
    """A probe that finds nothing to complain of."""


def is_private(path: str) -> bool:
    return False


def open_model() -> AbstractAsyncContextManager[ChatModel | None]:
    raise AssertionError("no model is configured")


async def count_tools(server: McpServer) -> int:
    await anyio.lowlevel.checkpoint()
    return 3


async def find_ripgrep() -> str | None:
    await anyio.lowlevel.checkpoint()
    return "/rg"


def find_sandbox() -> FoundSandbox:
    return FoundSandbox("bubblewrap")


PROBES = DoctorProbes(find_nothing, is_private, find_nothing, open_model, count_tools, find_ripgrep, find_sandbox)


async def run(checks: list[Check]) -> dict[str, str]:
    found: list[Finding] = []
    await run_checks(checks, found.append)
    return {finding.name: finding.status for finding in found}


async def test_checks_are_reported_in_their_order() -> None:
    servers = (McpServer(name="a", command="x"), McpServer(name="b", command="x", enabled=False))
    settings = Settings(share_dir="/share", work_dir="/", mcp=McpSettings(servers=servers))
    found = await run(build_checks("/c.toml", settings, PROBES, find_nothing, {}, {}))
    assert list(found.items()) == [
        ("configuration", "ok"),
        ("model", "failed"),
        ("key", "skipped"),
        ("proxy", "skipped"),
        ("endpoint", "skipped"),
        ("mcp a", "ok"),
        ("mcp b", "skipped"),
        ("ripgrep", "ok"),
        ("sandbox", "ok"),
        ("terminal", "skipped"),
    ]


async def test_no_mcp_server_is_a_finding_of_its_own() -> None:
    settings = Settings(share_dir="/share", work_dir="/")
    assert (await run(build_checks("/c.toml", settings, PROBES, find_nothing, {}, {})))["mcp"] == "ok"


async def test_broken_configuration_leaves_the_terminal_to_check() -> None:
    checks = build_checks_without_settings(ConfigError("Bad file."), find_nothing)
    assert await run(checks) == {"configuration": "failed", "terminal": "skipped"}


async def test_finding_waits_for_those_before_it() -> None:
    second_done, shown = anyio.Event(), list[str]()

    async def first() -> Finding:
        await second_done.wait()
        assert shown == []
        return Finding("first", "ok", "")

    async def second() -> Finding:
        await anyio.lowlevel.checkpoint()
        second_done.set()
        return Finding("second", "ok", "")

    await run_checks([first, second], lambda finding: shown.append(finding.name))
    assert shown == ["first", "second"]


async def test_check_that_breaks_is_a_finding_and_others_go_on() -> None:
    async def broken() -> Finding:
        await anyio.lowlevel.checkpoint()
        raise ValueError("no idea")

    async def working() -> Finding:
        await anyio.lowlevel.checkpoint()
        return Finding("working", "ok", "")

    found: list[Finding] = []
    await run_checks([broken, working], found.append)
    assert found == [Finding("doctor", "failed", "A check failed. ValueError: no idea"), Finding("working", "ok", "")]
