"""Two processes want one session (R-65)."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tests.support.program.wire_process import Place
from tests.support.providers.provider_server import text_reply
from tests.support.providers.strict import sent, strict_provider, text_of


@pytest.mark.spec("R-65")
def test_second_process_waits_and_is_refused_while_the_first_continues(place: Place) -> None:
    place.script("text: a", "text: b", "text: c")
    with place.wire("--session", "one") as first:
        assert first.prompt("hello")["result"] == {"status": "finished"}
        before = place.context()
        began = time.monotonic()
        done = place.run("--wire", "--session", "one")
        assert 4 < time.monotonic() - began < 9
        assert (done.returncode, done.stdout) == (1, b"")
        sentence, *hints = done.stderr.decode().splitlines()
        assert "one" in sentence
        assert "in use" in sentence or "another process" in sentence
        assert sentence.count(".") == 1
        assert hints[0].startswith("The log is in")
        assert place.context() == before
        assert first.prompt("more")["result"] == {"status": "finished"}
        assert first.finish() == 0


@pytest.mark.spec("R-65")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_process_gets_the_session_when_the_first_one_ends(place: Place, end: signal.Signals) -> None:
    with strict_provider(text_reply("one"), text_reply("two")) as server:
        place.provider(server.base_url)
        with place.wire("--session", "one") as first, place.wire("--session", "two") as second:
            first.prompt("hello")
            second.close()
            ending = threading.Timer(0.5, first.process.send_signal, [end])
            ending.start()
            with place.wire("--continue") as second:
                assert second.prompt("more")["result"] == {"status": "finished"}
                assert first.wait() == -end
                assert second.finish() == 0
            ending.join()
        assert [text_of(message) for message in sent(server)] == ["hello", "one", "more"]


def test_two_that_begin_the_same_session_at_once_never_interleave(place: Place) -> None:
    place.script("text: a", "text: b")
    with place.wire("--session", "one") as first, place.wire("--session", "one") as second:
        first.initialize()
        second.initialize()
        assert first.prompt("mine")["result"] == {"status": "finished"}
        error = second.prompt("no, mine")["error"]
        assert "another process" in error["message"]
        assert first.prompt("still mine")["result"] == {"status": "finished"}
        assert (first.finish(), second.finish()) == (0, 0)
    assert [one["content"] for one in place.context() if one["role"] == "user"] == ["mine", "still mine"]
