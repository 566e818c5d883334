"""The history of a conversation, always in a form that models accept.

Every tool call has an answer, answers stand in the order of their calls, and the token count is kept up to date without
looking at old messages again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from kimi.domain.content.message import Message, ToolCall, estimate_message
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord
from kimi.domain.tools.tool import INTERRUPTED, ToolReturnValue, tool_message


class History:
    """Records in order. `counted_tokens` were counted by the model, `estimated_tokens` are estimated since then."""

    __slots__ = ("_messages", "_records", "counted_tokens", "estimated_tokens", "next_checkpoint", "system_prompt")

    def __init__(self, records: Iterable[ContextRecord]) -> None:
        self._records: list[ContextRecord] = []
        self._messages: list[Message] = []
        self.system_prompt: str | None = None
        self.next_checkpoint = 0
        self.counted_tokens = 0
        self.estimated_tokens = 0
        for record in records:
            self.append(record)

    @property
    def messages(self) -> Sequence[Message]:
        """The messages, oldest first. The sequence is live: do not change it, and do not keep it across a rewind."""
        return self._messages

    @property
    def records(self) -> Sequence[ContextRecord]:
        """All records, oldest first."""
        return self._records

    @property
    def total_tokens(self) -> int:
        """The size of the context in tokens, as far as it is known."""
        return self.counted_tokens + self.estimated_tokens

    def append(self, record: ContextRecord) -> None:
        """Add a record at the end."""
        self._records.append(record)
        match record:
            case Message():
                self._messages.append(record)
                self.estimated_tokens += estimate_message(record)
            case UsageRecord(token_count):
                self.counted_tokens, self.estimated_tokens = token_count, 0
            case CheckpointRecord(id):
                self.next_checkpoint = id + 1
            case SystemPromptRecord(content):
                self.system_prompt = content

    def records_before_checkpoint(self, checkpoint: int) -> list[ContextRecord]:
        """Return the records before the checkpoint with this id; all records if there is none."""
        for index, record in enumerate(self._records):
            if isinstance(record, CheckpointRecord) and record.id == checkpoint:
                return self._records[:index]
        return list(self._records)


def find_unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last assistant message that no tool message answers, in order."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool" and message.tool_call_id is not None:
            answered.add(message.tool_call_id)
        elif message.role == "assistant":
            return [call for call in message.tool_calls if call.id not in answered]
        else:
            return []
    return []


def repair_records(
    records: Iterable[ContextRecord], find_result: Callable[[str], ToolReturnValue | None]
) -> tuple[list[ContextRecord], bool]:
    """Return the records with every tool call answered, and whether anything had to be changed.

    A missing answer is taken from `find_result(call id)` (the result in the event log); without one, the answer says
    that the call was interrupted. Answers without a call are left out; answers are put in the order of the calls. Two
    calls of a message with the same id, as other programs stored them, get ids of their own.
    """
    source = list(records)
    fixed: list[ContextRecord] = []
    index = 0
    while index < len(source):
        record = source[index]
        index += 1
        if not isinstance(record, Message):
            fixed.append(record)
        elif record.role == "assistant" and record.tool_calls:
            end = _find_answers_end(source, index)
            asking, following = _with_unique_ids(record, source[index:end])
            fixed += [asking, *_order_answers(asking.tool_calls, following, find_result)]
            index = end
        elif record.role != "tool":
            fixed.append(record)
    return fixed, fixed != source


def _with_unique_ids(message: Message, following: Sequence[ContextRecord]) -> tuple[Message, Sequence[ContextRecord]]:
    """Return the message and its possible answers, with a fresh id for each call that repeats an earlier id."""
    ids = [call.id for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return message, following
    own: list[str] = []
    for call_id in ids:
        others = (f"{call_id}_{number}" for number in count(2))
        own.append(call_id if call_id not in own else next(one for one in others if one not in (*ids, *own)))
    renamed = tuple(replace(call, id=new) for call, new in zip(message.tool_calls, own, strict=True))
    return replace(message, tool_calls=renamed), _rename_answers(following, list(zip(ids, own, strict=True)))


def _rename_answers(following: Sequence[ContextRecord], id_pairs: list[tuple[str, str]]) -> list[ContextRecord]:
    """Give each answer the new id of the first call with its old id that has no answer yet."""
    found: list[ContextRecord] = []
    for record in following:
        pair = next((one for one in id_pairs if isinstance(record, Message) and one[0] == record.tool_call_id), None)
        if pair is not None and isinstance(record, Message):
            id_pairs.remove(pair)
            record = replace(record, tool_call_id=pair[1])
        found.append(record)
    return found


def _find_answers_end(source: Sequence[ContextRecord], index: int) -> int:
    """Return the end of the records that may answer the calls before `index`: the next message of another role."""
    while index < len(source):
        record = source[index]
        if isinstance(record, CheckpointRecord) or (isinstance(record, Message) and record.role != "tool"):
            break
        index += 1
    return index


def _order_answers(
    calls: Sequence[ToolCall],
    following: Sequence[ContextRecord],
    find_result: Callable[[str], ToolReturnValue | None],
) -> Sequence[ContextRecord]:
    """Return `following` if it answers the calls in their order, else the answers rebuilt in that order.

    Usage records may stand anywhere in `following`.
    """
    if [one.tool_call_id for one in following if isinstance(one, Message)] == [call.id for call in calls]:
        return following
    others = [record for record in following if not isinstance(record, Message)]
    by_id = {record.tool_call_id: record for record in following if isinstance(record, Message)}
    found: list[ContextRecord] = []
    for call in calls:
        stored = by_id.get(call.id)
        found.append(stored or tool_message(call.id, find_result(call.id) or INTERRUPTED))
    return [*others, *found]
