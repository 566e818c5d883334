"""What a start costs and whom it talks to."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.loopback import loopback
from tests.e2e.process import Json, Place, WireProcess
from tests.provider_server import text_reply

AUDITED = Path(__file__).with_name("audited.py")


def audited(place: Place, *arguments: str) -> list[str]:
    """The command, and the file in which the network is noted."""
    return [sys.executable, str(AUDITED), str(place.root / "network.txt"), *arguments]


def network(place: Place) -> list[str]:
    """What was noted."""
    path = place.root / "network.txt"
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def running(place: Place, *arguments: str) -> Generator[WireProcess, None, None]:
    """An audited process that speaks JSON-RPC."""
    process = WireProcess(audited(place, *arguments), place.work, place.full_environ())
    try:
        yield process
    finally:
        process.close()


@pytest.mark.spec("R-161")
def test_initialize_is_answered_within_a_second(place: Place) -> None:
    place.script("text: unused")

    def start() -> float:
        began = time.monotonic()
        with place.wire() as kimi:
            kimi.initialize()
            return time.monotonic() - began

    assert min(start() for _ in range(3)) < 1.0


@pytest.mark.spec("R-164")
def test_nobody_is_talked_to_but_the_configured_provider(place: Place) -> None:
    with loopback(text_reply("hello"), text_reply("hello")) as provider:
        place.provider(provider.base_url)
        port = provider.base_url.rsplit(":", 1)[1].partition("/")[0]
        with running(place, "--wire") as kimi:
            kimi.initialize(client={"name": "test", "version": "1"})
            time.sleep(1)  # what is imported ahead runs now
            assert network(place) == []
            kimi.prompt("hi")
            assert kimi.finish() == 0
        assert network(place)
        with running(place, "acp") as agent:
            agent.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
            agent.next_line()
            new: Json = {"cwd": str(place.work), "mcpServers": []}
            agent.send({"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": new})
            while agent.next_line().get("id") != 2:
                pass
            assert agent.finish() == 0
        command = audited(place, "--print", "-p", "hi")
        done = subprocess.run(command, cwd=place.work, env=place.full_environ(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    reached = [line for line in network(place) if "127.0.0.1" not in line or port not in line]
    assert reached == []
