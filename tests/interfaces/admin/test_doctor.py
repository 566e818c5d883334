"""Parts of `kimi doctor` that a whole run cannot show quickly: time-outs, a terminal, a hanging check."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kimi.application.settings.settings import ModelSettings, Settings
from kimi.interfaces.admin.doctor import DoctorReport
from kimi.interfaces.admin.doctor_checks import (
    Finding,
    check_endpoint,
    check_files,
    check_key,
    check_proxy,
    check_terminal,
)
from tests.support.providers.provider_server import Reply, provider

pytestmark = pytest.mark.anyio


def settings(url: str = "https://provider.invalid", type_: str = "openai_legacy", **more: object) -> Settings:
    model = ModelSettings(provider_name="p", type=type_, model="m", base_url=url).model_copy(update=more)
    return Settings(share_dir="/nowhere", work_dir="/", model=model)


async def test_silent_endpoint_times_out() -> None:
    async with provider([Reply(fault="mute")]) as server:
        found = await check_endpoint(settings(server.base_url), {}, 0.2)
    assert found.status == "failed"
    assert found.message.endswith(" gave no answer within 0.2 s.")
    assert "try again" in found.advice


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (settings(), "failed"),
        (settings(type_="anthropic"), "failed"),
        (settings(oauth=True), "failed"),
        (settings(custom_headers={"X-Api-Key": "sk"}), "ok"),
        (settings(type_="vertexai"), "ok"),
        (settings("http://localhost:1/v1"), "ok"),
        (settings("http://127.0.0.2/v1"), "ok"),
        (settings(type_="_echo"), "skipped"),
        (settings(""), "skipped"),
    ],
)
def test_key_is_required_only_by_some_providers(given: Settings, status: str) -> None:
    assert check_key(given, {}).status == status


def test_unwritable_share_directory_is_reported() -> None:
    found = check_files("/c.toml", settings().model_copy(update={"share_dir": "/proc/kimi"}))
    assert (found.status, found.advice.startswith("Make it writable")) == ("failed", True)


def test_missing_terminal_is_not_a_failure() -> None:
    assert check_terminal({"TERM": "dumb"}).status == "skipped"


def test_every_finding_is_one_line() -> None:
    printed: list[str] = []
    report = DoctorReport(False, printed.append)
    report.add_finding(Finding("mcp\nx", "failed", "broken\x1b[2J\n\nbadly", "Mend\r\nit!"))
    report.add_finding(Finding("b", "ok", "Well."))
    assert report.finish() == 1
    assert printed == [
        "failed   mcp x: broken\\x1b[2J badly. Mend it!", "ok       b: Well.", "1 of 2 checks failed.",
    ]  # fmt: skip


def test_a_check_that_hangs_does_not_hold_up_the_end() -> None:
    program = (
        "import time; from kimi.interfaces.admin.doctor import DoctorReport, Watchdog; "
        "from kimi.interfaces.admin.doctor_checks import Finding\n"
        "report = DoctorReport(True, lambda text: print(text, flush=True))\n"
        "report.add_finding(Finding('a', 'ok', 'A.'))\n"
        "Watchdog(report).start(0.1); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=False)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [check["status"] for check in report["checks"]] == ["ok", "failed"]
    assert report["ok"] is False


@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "http://", "http://u:sk-hidden@[", "http://h:99999"])
async def test_invalid_base_url_is_reported(url: str) -> None:
    given = settings(url)
    assert check_proxy(given, {}).status in ("skipped", "ok")
    assert check_key(given, {}).status == "failed"
    found = await check_endpoint(given, {})
    assert (found.status, "cannot be used as an address" in found.message) == ("failed", True)
    assert "sk-hidden" not in found.message
