"""What a start costs, and whom it talks to."""

import os
import re
import time
from pathlib import Path

import pytest

from tests.support.program.acp_process import acp_process
from tests.support.program.pace import slowdown
from tests.support.program.terminal import CTRL_D, ENTER, terminal
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply

WATCH = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"):
        with open(os.environ["KIMI_TEST_NETWORK"], "a") as file:
            file.write(f"{event} {arguments!r}\\\\n")

sys.addaudithook(watch)
"""
"""Loaded by the interpreter at its start: writes down every way to the network that Python code takes."""


@pytest.mark.spec("R-161")
def test_the_handshake_is_answered_within_a_second(place: Place) -> None:
    place.script("text: x")
    with place.wire(cold=True) as warm:  # byte code and the default configuration are there from now on
        warm.initialize()
    took: list[float] = []
    while len(took) < 5 and (not took or min(took) >= 1):
        began = time.monotonic()
        with place.wire(cold=True) as process:
            process.initialize()
            took.append((time.monotonic() - began) / slowdown())
    assert min(took) < 1, took


def watched(place: Place) -> Path:
    """Have every process of the place write down whom it talks to; gives the file."""
    directory = place.root / "watch"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(WATCH.replace("\\\\n", "\\n"), encoding="utf-8")
    paths = [str(directory), os.environ.get("PYTHONPATH", "")]
    place.environ |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "KIMI_TEST_NETWORK": str(place.root / "network.txt"),
    }
    return place.root / "network.txt"


@pytest.mark.spec("R-164")
def test_only_the_configured_provider_is_contacted(place: Place) -> None:
    network = watched(place)
    place.script("text: x")
    with place.wire() as process:
        process.initialize()
        assert process.prompt("hi")["result"]["status"] == "finished"
        process.finish()
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("hi", ENTER)
        shown.until("x")
        shown.idle()
        shown.type(CTRL_D)
        assert shown.wait() == 0
    with acp_process(place) as agent:
        agent.shake_hands()
        agent.new_session(place)
        assert agent.finish() == 0
    assert place.run("--print", "-p", "hi").returncode == 0
    assert not network.exists()  # the scripted model needs no network, and so nothing does
    with loopback(text_reply("over the wire")) as server:
        place.provider(server.base_url)
        assert place.run("--print", "-p", "hi").returncode == 0
        port = re.search(r":(\d+)", server.base_url.removeprefix("http:"))
        assert port is not None
        lines = network.read_text(encoding="utf-8").splitlines()
        assert lines  # the watch works
        assert all("127.0.0.1" in line and port[1] in line for line in lines), lines
        assert len(server.requests) == 1  # no telemetry beside the request itself
