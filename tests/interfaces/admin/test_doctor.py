"""Parts of `kimi doctor` that a whole run cannot show quickly: time-outs, addresses, a hanging check."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kimi.application.admin.doctor_checks import Finding, check_endpoint, check_files, check_proxy
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.interfaces.admin.doctor import DoctorReport
from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES
from kimi.interfaces.bootstrap.admin import build_doctor_probes
from tests.support.providers.provider_server import Reply, provider

pytestmark = pytest.mark.anyio


def settings(url: str = "https://provider.invalid", type_: str = "openai_legacy", **more: object) -> Settings:
    model = ModelSettings(provider_name="p", type=type_, model="m", base_url=url).model_copy(update=more)
    return Settings(share_dir="/nowhere", work_dir="/", model=model)


async def test_silent_endpoint_times_out() -> None:
    async with provider([Reply(fault="mute")]) as server:
        given = settings(server.base_url)
        found = await check_endpoint(given.model, API_KEY_VARIABLES, build_doctor_probes(given, {}), 0.2)
    assert found.status == "failed"
    assert found.message.endswith(" gave no answer within 0.2 s.")
    assert "try again" in found.advice


async def test_unwritable_share_directory_is_reported() -> None:
    given = settings().model_copy(update={"share_dir": "/proc/kimi"})
    found = check_files("/c.toml", given.share_dir, build_doctor_probes(given, {}))
    assert (found.status, found.advice.startswith("Make it writable")) == ("failed", True)


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
        "from kimi.application.admin.doctor_checks import Finding\n"
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
    probes = build_doctor_probes(given, {})
    assert check_proxy(given.model, probes.resolve_proxy).status in ("skipped", "ok")
    found = await check_endpoint(given.model, API_KEY_VARIABLES, probes)
    assert (found.status, "cannot be used as an address" in found.message) == ("failed", True)
    assert "sk-hidden" not in found.message
