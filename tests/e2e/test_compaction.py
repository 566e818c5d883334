"""Compaction and the commands over the context, through the process (wire spec 7.8, 7.9; runtime spec 5.4)."""

from __future__ import annotations

import pytest

from kimi.domain.history.compaction import SUMMARY_HEADER
from tests.support.program.wire_process import Json, Place, WireProcess, read_lines
from tests.support.providers.scripts import step


def used(tokens: int, output: int = 0) -> str:
    """The usage of a call after which the context has so many tokens."""
    return f"usage: input_other={tokens - output} output={output}"


def types_of(kimi: WireProcess, text: str) -> list[str]:
    """The types of the events of one turn."""
    before = len(kimi.lines)
    kimi.prompt(text)
    return [line["params"]["type"] for line in kimi.lines[before:] if "method" in line]


def roles(records: list[Json]) -> list[str]:
    """What stands in a context, in short."""
    return [record["role"] for record in records]


MANUAL = ["TurnBegin", "CompactionBegin", "CompactionEnd", "ContentPart", "StatusUpdate", "TurnEnd"]
AUTOMATIC = ["TurnBegin", "StepBegin", "CompactionBegin", "CompactionEnd", "ContentPart", "StatusUpdate", "TurnEnd"]


@pytest.mark.spec("W-93")
def test_compaction_runs_automatically_and_manually_and_may_fail(place: Place) -> None:
    place.script(
        step("text: one", used(100)),
        step("text: two", used(90_000)),
        step("text: They talked.", used(300, 60)),
        step("text: three", used(200)),
        step("text: They talked more."),
        step("text: four", used(100_000)),
        "error: 400 too long",
    )
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("first")
        kimi.prompt("second")
        assert types_of(kimi, "third") == AUTOMATIC
        assert types_of(kimi, "/compact") == MANUAL
        kimi.prompt("fourth")
        before = len(kimi.lines)
        answer = kimi.prompt("fifth")
        assert answer["error"]["code"] == -32003
        assert [line["params"]["type"] for line in kimi.lines[before:-1]] == [
            "TurnBegin", "StepBegin", "CompactionBegin", "CompactionEnd", "StepInterrupted", "TurnEnd",
        ]  # fmt: skip
        assert kimi.payloads("CompactionBegin") == [{}] * 3
        assert kimi.payloads("CompactionEnd") == [{}] * 3
        assert kimi.finish() == 0


@pytest.mark.spec("W-94", "R-69")
def test_clear_and_compact_announce_and_rotate(place: Place) -> None:
    place.script("text: one", "text: two", "text: They talked.", "text: three")
    with place.wire() as kimi:
        kimi.initialize()
        assert types_of(kimi, "/compact") == ["TurnBegin", "ContentPart", "TurnEnd"]
        assert kimi.text == "The context is empty."
        kimi.prompt("first")
        kimi.prompt("second")
        assert types_of(kimi, "/compact") == MANUAL
        assert kimi.payloads("ContentPart")[-1]["text"] == "The context has been compacted."
        update = kimi.payloads("StatusUpdate")[-1]
        assert update["max_context_tokens"] == 100_000
        assert update["context_tokens"] > 0
        assert update["context_usage"] == update["context_tokens"] / 100_000
        session = place.session_dirs()[-1]
        assert [record.get("content") for record in read_lines(session / "context_1.jsonl")].count("first") == 1
        assert roles(place.context()) == [
            "_system_prompt", "_checkpoint", "user", "user", "assistant", "_usage",
        ]  # fmt: skip
        assert place.context()[2]["content"] == [
            {"type": "text", "text": SUMMARY_HEADER},
            {"type": "text", "text": "They talked."},
        ]
        assert types_of(kimi, "/clear") == ["TurnBegin", "ContentPart", "StatusUpdate", "TurnEnd"]
        assert kimi.payloads("ContentPart")[-1]["text"] == "The context has been cleared."
        update = kimi.payloads("StatusUpdate")[-1]
        assert (update["context_usage"], update["context_tokens"], update["max_context_tokens"]) == (0.0, 0, 100_000)
        assert roles(place.context()) == ["_system_prompt"]
        assert roles(read_lines(session / "context_2.jsonl"))[:3] == ["_system_prompt", "_checkpoint", "user"]
        assert types_of(kimi, "/compact") == ["TurnBegin", "ContentPart", "TurnEnd"]
        assert kimi.prompt("third")["result"] == {"status": "finished"}
        assert kimi.finish() == 0


def test_compacted_session_resumes_after_restart(place: Place) -> None:
    place.script("text: one", "text: two", "text: They talked.")
    with place.wire() as kimi:
        for text in ("first", "second", "/compact"):
            kimi.prompt(text)
        assert kimi.finish() == 0
    session = place.session_dirs()[-1].name
    place.script("text: three")
    with place.wire("--session", session) as kimi:
        assert kimi.prompt("third")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert roles(place.context())[2:] == [
        "user", "user", "assistant", "_usage", "_checkpoint", "user", "_checkpoint", "assistant",
    ]  # fmt: skip


def test_small_windows_are_not_compacted_at_every_prompt(place: Place) -> None:
    place.context_size = 40_000
    place.script(*(step(f"text: answer {number}", used(1000 * number)) for number in range(1, 6)))
    with place.wire() as kimi:
        for number in range(5):
            kimi.prompt(f"question {number}")
        assert "CompactionBegin" not in kimi.types
        assert kimi.finish() == 0
    assert not list(place.session_dirs()[-1].glob("context_*.jsonl"))


@pytest.mark.spec("R-108")
def test_token_accounting_is_reported(place: Place) -> None:
    place.script(
        step("text: " + "a" * 400, "usage: input_other=100 input_cache_read=20 input_cache_creation=3 output=17"),
        step("text: " + "b" * 40),
        step("text: They talked.", used(900, 60)),
        step("text: end", used(500, 5)),
    )
    with place.wire() as kimi:
        kimi.prompt("first")
        update = kimi.payloads("StatusUpdate")[-1]
        assert (update["context_tokens"], update["context_usage"]) == (123, 123 / 100_000)
        assert [record["token_count"] for record in place.context() if record["role"] == "_usage"] == [123, 140]
        kimi.prompt("c" * 80)
        update = kimi.payloads("StatusUpdate")[-1]
        unknown = ("context_usage", "context_tokens", "max_context_tokens", "token_usage")
        assert [update[name] for name in unknown] == [None] * 4
        assert [record["token_count"] for record in place.context() if record["role"] == "_usage"] == [123, 140]
        kimi.prompt("/compact")
        update = kimi.payloads("StatusUpdate")[-1]
        assert update["context_tokens"] == 60 + 80 // 4 + 40 // 4  # the summary as counted, the kept ones as estimated
        assert update["context_usage"] == 90 / 100_000
        assert [record["token_count"] for record in place.context() if record["role"] == "_usage"] == [90]
        kimi.prompt("third")
        assert kimi.payloads("StatusUpdate")[-1]["context_tokens"] == 495
        assert [record["token_count"] for record in place.context() if record["role"] == "_usage"] == [90, 495, 500]
        assert kimi.finish() == 0
