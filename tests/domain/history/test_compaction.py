"""When compaction is due, what it keeps and what it asks (runtime spec 5.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, Message, ToolCall, message_text, user_message
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart, estimate_tokens
from kimi.domain.history.compaction import (
    SUMMARY_HEADER,
    build_compacted_context,
    build_compaction_request,
    has_unsummarised_messages,
    is_compaction_due,
    is_summary,
    split_messages,
)
from kimi.domain.history.session import CheckpointRecord, SystemPromptRecord, UsageRecord
from kimi.domain.turn import TurnLimits


def said(text: str, *calls: ToolCall) -> Message:
    """A message of the assistant."""
    return Message("assistant", (TextPart(text),), calls)


def result(call_id: str, text: str = "done") -> Message:
    """The answer to a call."""
    return Message("tool", (TextPart(text),), tool_call_id=call_id)


CALL = ToolCall("c1", Function("ReadFile", '{"path": "a.py"}'))


@pytest.mark.parametrize(
    ("tokens", "window", "ratio", "reserved", "due"),
    [
        (84_999, 100_000, 0.85, 10_000, False),
        (85_000, 100_000, 0.85, 10_000, True),
        (49_999, 100_000, 0.85, 50_000, False),
        (50_000, 100_000, 0.85, 50_000, True),
        (54, 100, 0.55, 1000, False),
        (55, 100, 0.55, 1000, True),
        (1, 50_000, 0.85, 50_000, False),
        (42_499, 50_000, 0.85, 50_000, False),
        (42_500, 50_000, 0.85, 50_000, True),
        (33_999, 40_000, 0.85, 50_000, False),
        (34_000, 40_000, 0.85, 50_000, True),
    ],
)
def test_both_thresholds_are_exact(tokens: int, window: int, ratio: float, reserved: int, due: bool) -> None:
    limits = TurnLimits(compaction_ratio=ratio, reserved_tokens=reserved)
    assert is_compaction_due(tokens, window, limits) is due


def test_the_last_two_messages_stay_with_their_results() -> None:
    messages = [user_message("a"), said("b"), said("c", CALL), result("c1"), said("d")]
    older, kept = split_messages(messages)
    assert older == messages[:2]
    assert kept == messages[2:]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_two_messages_are_too_few_to_summarise(count: int) -> None:
    messages = [user_message("a"), said("b")][:count]
    older, kept = split_messages(messages)
    assert (list(older), list(kept)) == ([], messages)


turns = st.lists(st.sampled_from(["user", "plain", "call"]), max_size=8)


@given(turns)
def test_result_is_never_separated_from_its_call(kinds: list[str]) -> None:
    messages: list[Message] = []
    for kind in kinds:
        messages += {"user": [user_message("u")], "plain": [said("p")], "call": [said("", CALL), result("c1")]}[kind]
    older, kept = split_messages(messages)
    assert [*older, *kept] == messages
    assert not kept or kept[0].role != "tool"
    assert sum(message.role != "tool" for message in kept) == min(2, len(kinds))


@pytest.mark.spec("R-104")
def test_request_describes_calls_results_and_media() -> None:
    medium = MediaUrl("data:image/png;base64,AAAA")
    long = "x" * 5000
    older = [
        Message("user", (TextPart("Look at this."), ImagePart(medium), AudioPart(medium), VideoPart(medium))),
        Message("assistant", (ThinkPart("secret thought"), TextPart("I look.")), (CALL,)),
        result("c1", f"begin {long} end"),
        said("", ToolCall("c2", Function("WriteFile", f'{{"content": "{long}"}}'))),
    ]
    request = build_compaction_request(older, "", 100_000)
    text = message_text(request)
    assert request.role == "user"
    assert len(request.content) == 1
    for wanted in ("Look at this.", "[image omitted]", "[audio omitted]", "[video omitted]", "I look."):
        assert wanted in text
    assert '[calls ReadFile as c1 with {"path": "a.py"}]' in text
    assert "(result of c1)" in text
    assert "begin xxx" in text
    assert "xxx end" in text
    assert "[calls WriteFile as c2 with" in text
    assert "AAAA" not in text
    assert "secret thought" not in text
    assert "x" * 2001 not in text


def test_instruction_is_marked_as_overriding() -> None:
    text = message_text(build_compaction_request([user_message("a")], "Keep the names.", 10_000))
    assert text.endswith("It counts more than the instructions above:\nKeep the names.")


def test_a_request_fits_a_small_window() -> None:
    older = [user_message("y" * 50_000), said("z" * 50_000)]
    assert estimate_tokens(message_text(build_compaction_request(older, "", 2_000))) <= 2_100
    assert "characters left out" in message_text(build_compaction_request(older, "", 300))


def test_compacted_context_starts_with_prompt_checkpoint_and_summary() -> None:
    kept = [user_message("12345678"), said("1234")]
    records = build_compacted_context("prompt", [TextPart("summary")], 7, kept)
    standing = Message("user", (TextPart(SUMMARY_HEADER), TextPart("summary")))
    assert records == [SystemPromptRecord("prompt"), CheckpointRecord(0), standing, *kept, UsageRecord(7 + 2 + 1)]
    assert is_summary(standing)
    assert not has_unsummarised_messages([standing])
    assert has_unsummarised_messages([standing, kept[0]])


def test_without_a_summary_the_messages_are_the_context() -> None:
    assert build_compacted_context(None, [], None, [user_message("a")]) == [
        CheckpointRecord(0),
        user_message("a"),
        UsageRecord(1),
    ]
