"""The history: counts, checkpoints, and a form that every model accepts."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, Message, ToolCall, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.history.history import History, find_unanswered_calls, repair_records
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord
from kimi.domain.tools.tool import INTERRUPTED, ToolReturnValue, tool_message, tool_ok


def call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, function=Function("Shell", "{}"))


def asking_all(call_ids: list[str]) -> Message:
    return asking(*call_ids)


def asking(*call_ids: str) -> Message:
    return Message("assistant", (), tuple(call(call_id) for call_id in call_ids))


def answer(call_id: str, text: str = "done") -> Message:
    return tool_message(call_id, tool_ok(text))


def nothing(call_id: str) -> ToolReturnValue | None:
    return None


ids = st.sampled_from(["a", "b", "c"])
any_record = st.one_of(
    st.just(user_message("hi")),
    st.just(Message("assistant", (TextPart("ok"),))),
    st.builds(asking_all, st.lists(ids, min_size=1, max_size=3)),
    st.builds(answer, ids),
    st.builds(CheckpointRecord, st.integers(0, 3)),
    st.builds(UsageRecord, st.integers(0, 100)),
)


def is_acceptable(messages: Sequence[Message]) -> bool:
    """Does each call have its answer, in order, right behind it, and is there no other answer?"""
    index = 0
    while index < len(messages):
        expected = [one.id for one in messages[index].tool_calls]
        if len(set(expected)) < len(expected):
            return False
        if messages[index].role == "tool":
            return False
        index += 1
        found = [one.tool_call_id for one in messages[index : index + len(expected)] if one.role == "tool"]
        if found != expected:
            return False
        index += len(expected)
    return True


@given(st.lists(any_record, max_size=12))
def test_any_repaired_history_is_acceptable(records: list[ContextRecord]) -> None:
    fixed, changed = repair_records(records, nothing)
    assert is_acceptable([one for one in fixed if isinstance(one, Message)])
    assert changed == (fixed != records)
    assert repair_records(fixed, nothing) == (fixed, False)


@given(st.lists(any_record, max_size=12))
def test_repair_loses_no_user_message_checkpoint_or_usage(records: list[ContextRecord]) -> None:
    def kept(source: Sequence[ContextRecord]) -> list[ContextRecord]:
        return [without_ids(one) for one in source if not (isinstance(one, Message) and one.role == "tool")]

    def without_ids(record: ContextRecord) -> ContextRecord:
        if not isinstance(record, Message):
            return record
        return replace(record, tool_calls=tuple(replace(one, id="") for one in record.tool_calls))

    fixed, _ = repair_records(records, nothing)
    assert sorted(map(repr, kept(fixed))) == sorted(map(repr, kept(records)))


def test_missing_result_is_taken_from_the_log_or_marked_interrupted() -> None:
    known = tool_ok("from the log")
    fixed, changed = repair_records([asking("a", "b")], {"b": known}.get)
    assert changed
    assert fixed[1:] == [tool_message("a", INTERRUPTED), tool_message("b", known)]


def test_answers_are_put_in_the_order_of_their_calls() -> None:
    fixed, changed = repair_records([asking("a", "b"), answer("b"), UsageRecord(3), answer("a")], nothing)
    assert changed
    assert fixed == [asking("a", "b"), UsageRecord(3), answer("a"), answer("b")]


def test_duplicate_call_ids_in_a_message_are_made_unique() -> None:
    fixed, changed = repair_records([asking("a", "a_2", "a"), answer("a", "1"), answer("a", "2")], nothing)
    assert changed
    assert fixed == [asking("a", "a_2", "a_3"), answer("a", "1"), tool_message("a_2", INTERRUPTED), answer("a_3", "2")]


def test_repair_without_missing_results_changes_nothing() -> None:
    compacted = [CheckpointRecord(0), asking("a"), answer("a"), UsageRecord(90)]
    assert repair_records(compacted, nothing) == (compacted, False)


def test_unanswered_calls_are_those_of_the_last_assistant_message() -> None:
    assert [one.id for one in find_unanswered_calls([asking("a", "b"), answer("a")])] == ["b"]
    assert find_unanswered_calls([asking("a"), answer("a")]) == []
    assert find_unanswered_calls([asking("a"), user_message("new")]) == []
    assert find_unanswered_calls([]) == []


def test_counts_follow_the_records() -> None:
    history = History([SystemPromptRecord("be brief"), CheckpointRecord(0), user_message("x" * 40)])
    assert (history.system_prompt, history.next_checkpoint, history.counted_tokens, history.estimated_tokens) == (
        "be brief",
        1,
        0,
        10,
    )
    history.append(UsageRecord(500))
    assert (history.counted_tokens, history.estimated_tokens) == (500, 0)
    history.append(answer("a", "y" * 400))
    assert history.counted_tokens == 500
    assert history.estimated_tokens >= 100
    assert len(history.messages) == 2


def test_a_checkpoint_is_found_by_its_id() -> None:
    records: list[ContextRecord] = [CheckpointRecord(0), user_message("a"), CheckpointRecord(1), user_message("b")]
    history = History(records)
    assert history.records_before_checkpoint(1) == records[:2]
    assert history.records_before_checkpoint(7) == records
    assert list(history.records) == records
