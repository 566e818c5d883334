"""Clients that do not read, or are gone: memory stays bounded, and nothing is left (R-244, R-245)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.program.pace import slowdown
from tests.support.program.processes import all_gone, comes_true, is_alive, marked
from tests.support.program.program import kimi_command
from tests.support.program.unread import stalled
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, call_reply, text_reply

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")

MAX_GROWTH_MB = 16
MOMENTS = 60 if os.environ.get("KIMI_LONG_TESTS") == "1" else 6


@dataclass
class SlowClient:
    """A client that reads only when it is told to."""

    process: subprocess.Popen[bytes]
    is_editor: bool
    session: str = ""
    number: int = 0

    def send(self, method: str, params: Json) -> int:
        """Send a request; return its id."""
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self.number

    def answer(self, call_id: int) -> Json:
        """Read to the answer to this request."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: Json = json.loads(line)
            if "method" not in message and message["id"] == call_id:
                return message
        raise AssertionError("the output has ended")

    def prompt(self) -> int:
        """Send a prompt; return its id."""
        if not self.is_editor:
            return self.send("prompt", {"user_input": "go"})
        return self.send("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": "go"}]})

    def begin(self, place: Place) -> None:
        """Shake hands."""
        if self.is_editor:
            self.answer(self.send("initialize", {"protocolVersion": 1}))
            opened = self.answer(self.send("session/new", {"cwd": str(place.work), "mcpServers": []}))
            self.session = opened["result"]["sessionId"]
        else:
            self.answer(self.send("initialize", {"protocol_version": "1.10", "client": {"name": "slow"}}))

    def is_at_rest(self) -> bool:
        """Whether the process uses no processor time for half a second; on a busy machine a tenth is too little."""
        return all(stalled(self.process.pid) for _ in range(5))

    @property
    def resident_mb(self) -> float:
        """Memory of the process in MB."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def slow_client(place: Place, kind: str) -> Generator[SlowClient, None, None]:
    """Run the program for such a client; kill it on leaving if it still runs."""
    arguments = ["acp"] if kind == "acp" else ["--wire", "--yolo"]
    with subprocess.Popen(
        [*kimi_command(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=place.work,
        env=place.full_environ(),
    ) as process:
        try:
            client = SlowClient(process, kind == "acp")
            client.begin(place)
            yield client
        finally:
            process.kill()


def watch_growth(client: SlowClient, level: float) -> float:
    """Return by how much the process grows until it waits, in MB."""
    top, quiet, began = level, 0, time.monotonic()
    while (quiet < 10 or time.monotonic() - began < 5) and time.monotonic() - began < 60:
        quiet = quiet + 1 if stalled(client.process.pid) else 0
        top = max(top, client.resident_mb)
    return top - level


@pytest.mark.spec("R-244")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("size", [200, 2000, 100_000])
@pytest.mark.parametrize("kind", ["wire", "acp"])
def test_a_client_that_does_not_read_costs_little_memory(place: Place, kind: str, size: int) -> None:
    flood = text_reply(*["x" * size] * (8_000_000 // size))
    with loopback(*[text_reply("hi")] * 3, flood) as server:
        place.context_size = 1_000_000_000
        with slow_client(place.provider(server.base_url), kind) as client:
            for _ in range(3):
                client.answer(client.prompt())
            assert comes_true(client.is_at_rest, 20)  # everything is imported
            level = client.resident_mb
            asked = client.prompt()
            assert comes_true(lambda: len(server.requests) == 4, 20)
            growth = watch_growth(client, level)
            print(f"{kind}, pieces of {size}: {growth:.1f} MB more")
            assert growth < MAX_GROWTH_MB
            if kind == "wire":
                cancel = client.send("cancel", {})
                assert client.answer(cancel)["result"] == {}
                assert client.answer(asked)["result"] == {"status": "cancelled"}


@pytest.mark.spec("R-244")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["wire", "acp"])
def test_requests_whose_answers_are_not_read_cost_little_memory(place: Place, kind: str) -> None:
    """Far more answers than all buffers hold: the input waits until the client reads, and then all of them come."""
    place.script("text: hi")
    with slow_client(place, kind) as client:
        client.answer(client.prompt())
        assert comes_true(client.is_at_rest, 20)
        level = client.resident_mb
        params: Json = {"protocol_version": "1.10", "protocolVersion": 1}
        line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode() + b"\n"
        count = 60_000
        assert client.process.stdin is not None
        fd = client.process.stdin.fileno()
        os.set_blocking(fd, False)
        rest, sent = line * count, 0
        began = time.monotonic()
        while rest and time.monotonic() - began < 20:
            try:
                written = os.write(fd, rest[:65_536])
            except BlockingIOError:
                if stalled(client.process.pid) and stalled(client.process.pid):
                    break
                continue
            rest, sent = rest[written:], sent + written
        growth = watch_growth(client, level)
        print(f"{kind}: {sent // len(line)} requests unread, {growth:.1f} MB more")
        assert rest, "the input waits"
        assert growth < MAX_GROWTH_MB
        assert client.process.stdout is not None
        answers = sent // len(line)
        for _ in range(answers):
            assert json.loads(client.process.stdout.readline())["id"] == 0


@pytest.mark.spec("R-245")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["wire", "acp"])
def test_a_client_that_is_gone_leaves_nothing_running(marked_place: Place, word: str, kind: str) -> None:
    """At any moment of a turn that runs a command: within a second no process of it is left."""
    source = random.Random(5)
    sleeps = call_reply(("c1", "Shell", json.dumps({"command": "sleep 60 & sleep 60"})))
    place = marked_place
    with loopback(sleeps, Reply(fault="mute")) as server:
        place.provider(server.base_url)
        took: list[float] = []
        for _ in range(MOMENTS):
            with slow_client(place, kind) as client:
                if kind == "acp":
                    mode = {"sessionId": client.session, "modeId": "yolo"}
                    client.answer(client.send("session/set_mode", mode))
                client.prompt()
                time.sleep(source.uniform(0, 0.6))
                assert client.process.stdin is not None
                assert client.process.stdout is not None
                began = time.monotonic()
                if source.random() < 0.7:
                    client.process.stdin.close()
                client.process.stdout.close()
                assert comes_true(lambda: not is_alive(client.process.pid), 10)
                assert all_gone(word), marked(word)
                took.append(time.monotonic() - began)
            server.requests.clear()
        print(f"{kind}: {len(took)} clients gone, at most {max(took):.2f} s")
        assert max(took) < 1 * slowdown() * 2
