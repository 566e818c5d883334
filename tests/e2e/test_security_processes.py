"""What others see of the running program, and what it leaves behind (tools spec 3.1, runtime spec 2.8)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.program.escapes import Fugitives
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Place
from tests.support.providers.scripts import shell

LOOK = """
import os, re
for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
    for part in ("cmdline", "environ"):
        try:
            text = open(f"/proc/{pid}/{part}", "rb").read()
        except OSError:
            continue
        if re.search(rb"planted-[a-z]+-secret", text) and b"re.search" not in text:
            print("found in", part, "of", pid, re.findall(rb"planted-[a-z]+-secret", text), text[:200])
print("looked")
"""


@pytest.mark.spec("R-174")
@pytest.mark.parametrize("form", ["{option}\0{value}", "{option}={value}"])
def test_no_process_shows_a_key_in_its_title_or_environment(place: Place, form: str) -> None:
    (place.work / "look.py").write_text(LOOK)
    place.script(shell("c1", "python3 look.py"), "text: done")
    config = (place.share / "config.toml").read_text()
    service = '[services.moonshot_search]\nbase_url = "http://127.0.0.1:9"\napi_key = "planted-service-secret"\n'
    servers = json.dumps({"mcpServers": {"s": {"url": "http://127.0.0.1:9", "auth": "planted-bearer-secret"}}})
    place.environ = {
        "KIMI_API_KEY": "planted-kimi-secret",
        "MY_SERVICE": "planted-service-secret",
        "WITHIN": "https://u:planted-service-secret@h",
    }
    options = [
        *form.format(option="--config", value=config + service).split("\0"),
        *form.format(option="--mcp-config", value=servers).split("\0"),
    ]
    with place.wire("--yolo", *options, cold=True) as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        output = kimi.payloads("ToolResult")[0]["return_value"]["output"]
        assert output.strip() == "looked"
        title = Path(f"/proc/{kimi.process.pid}/cmdline").read_bytes()
        assert b"--wire" in title
        assert b"*****" in title


@pytest.mark.spec("R-170")
@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGKILL"])
def test_nothing_outlives_the_program(place: Place, how: str) -> None:
    fugitives = Fugitives()
    lines = fugitives.lines(then_wait=False)
    place.script(*(shell(f"c{number}", line) for number, line in enumerate(lines)), "text: done")
    with place.wire("--yolo") as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert fugitives.all_ran()
        if how == "end of input":
            assert kimi.finish() == 0
        else:
            os.kill(kimi.process.pid, signal.SIGKILL if how == "SIGKILL" else signal.SIGTERM)
        assert fugitives.left_after((3.0 if how == "SIGTERM" else 1.0) * slowdown()) == set()
