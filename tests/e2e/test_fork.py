"""Forks of a session that a real process wrote go on in a real process, at a provider that is strict (R-70)."""

from __future__ import annotations

import anyio
import pytest

from kimi.application.sessions.fork_session import fork, undo
from kimi.infrastructure.store.jsonl import JsonlStore
from tests.support.program.wire_process import Place, approve, read_lines
from tests.support.providers.provider_server import call_reply, text_reply
from tests.support.providers.strict import sent, sent_system, strict_provider, text_of
from tests.support.stored_sessions import events_of, listed, sessions_dir

LISTING = ("c1", "Shell", '{"command":"echo first; echo second"}')


def fork_of(place: Place, session_id: str, turn: int) -> None:
    """`fork-<turn>` behind a turn, and `undo-<turn>` before it."""

    async def both() -> None:
        store = JsonlStore(str(place.share), str(place.work))
        source = await store.open(session_id)
        assert source is not None
        await fork(store, source, lambda: f"fork-{turn}", turn)
        await undo(store, source, lambda: f"undo-{turn}", turn)
        source.close()

    anyio.run(both)


@pytest.mark.spec("R-70")
def test_forks_of_a_compacted_session_with_reminders_continue(place: Place) -> None:
    with strict_provider(
        text_reply("one"), call_reply(LISTING), text_reply("two"), text_reply("They talked."), text_reply("three")
    ) as server:
        place.provider(server.base_url)
        with place.wire("--session", "old") as kimi:
            kimi.initialize()
            for text in ("begin", "/afk", "go on", "/compact", "go on", "go on"):
                assert kimi.prompt(text, approve)["result"] == {"status": "finished"}
            assert kimi.finish() == 0
        system = sent_system(server)
        before = {path: path.read_bytes() for path in (sessions_dir(place) / "old").iterdir() if path.is_file()}
        for turn in (0, 2, 4):
            fork_of(place, "old", turn)
        assert {path: path.read_bytes() for path in before} == before
        server.replies.clear()
        server.replies.append(text_reply("fine"))
        said: dict[str, list[str]] = {}
        for name in ("fork-0", "fork-2", "undo-2", "fork-4", "undo-4", "undo-0"):
            with place.wire("--session", name) as kimi:
                assert kimi.response(kimi.call("replay"))["result"]["status"] == "finished"
                kimi.initialize()
                assert kimi.prompt("and now?")["result"] == {"status": "finished"}
                assert kimi.finish() == 0
            assert sent_system(server) == system
            said[name] = [text_of(message) for message in sent(server) if message["role"] != "tool"]
    assert said["undo-0"] == ["and now?"]
    assert said["fork-0"] == ["begin", "one", "and now?"]
    assert said["undo-2"] == said["fork-0"]
    begin, one, go_on, call, two, now = said["fork-2"]
    assert [begin, one, call, two, now] == ["begin", "one", "", "two", "and now?"]
    assert go_on.startswith("go on\n<system-reminder>")
    assert any("They talked." in text for text in said["undo-4"])
    assert said["fork-4"][: len(said["undo-4"]) - 1] == said["undo-4"][:-1]
    assert "three" in said["fork-4"]
    assert "three" not in said["undo-4"]
    log = read_lines(sessions_dir(place) / "fork-0" / "wire.jsonl")
    assert events_of(log)[:2] == ["TurnBegin", "StepBegin"]
    assert events_of(log).count("TurnEnd") == 2
    assert listed(place) == []  # the ids are no UUIDs
    with_titles = {one.id: one.title for one in JsonlStore(str(place.share), str(place.work)).list_sessions()}
    assert with_titles["fork-2"] == "Fork: begin"
    assert with_titles["undo-2"] == "Undo: begin"
