"""Memory of the whole process stays flat, whatever streams through it. The bounds are generous; Linux only tells it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cases.acp_talk import AcpClient
from benchmarks.client import WireClient
from benchmarks.worlds import provider
from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Place


@contextmanager
def kimi(tmp_path: Path, pieces: int) -> Generator[WireClient, None, None]:
    """The program, after its handshake."""
    with provider({"text": pieces}) as base_url:
        place = Place(tmp_path, context_size=10_000_000).provider(base_url)
        with WireClient([*kimi_command(), "--wire"], place.work, place.full_environ()) as client:
            client.initialize()
            yield client


def test_a_long_stream_leaves_little_more_than_its_text(tmp_path: Path) -> None:
    with kimi(tmp_path, 20_000) as client:
        client.prompt("go")
        before = client.memory_mb()
        assert client.prompt("go").parts == 20_000
        client.prompt("go")
        assert client.memory_mb() - before < 15  # the two texts are 0.4 MB each, once stored and once encoded


def test_turns_keep_little_memory(tmp_path: Path) -> None:
    with kimi(tmp_path, 5) as client:
        for _ in range(20):
            client.prompt("hi")
        before = client.memory_mb()
        for _ in range(100):
            client.prompt("hi")
        assert client.memory_mb() - before < 5


def test_idle_server_uses_little_memory(tmp_path: Path) -> None:
    with kimi(tmp_path, 5) as client:
        assert client.memory_mb() < 60
        for _ in range(20):
            client.prompt("hi")
        assert client.memory_mb() < 80


def test_idle_agent_of_an_editor_uses_little_memory(tmp_path: Path) -> None:
    """The models of the protocol's library alone would take another 10 MB."""
    with provider({"text": 5}) as base_url:
        place = Place(tmp_path).provider(base_url)
        with AcpClient([*kimi_command(), "acp"], place.work, place.full_environ()) as client:
            client.shake_hands()
            assert client.memory_mb() < 60
            session_id = client.new_session(place.work)
            for _ in range(20):
                client.answer(client.prompt_in(session_id))
            assert client.memory_mb() < 80
