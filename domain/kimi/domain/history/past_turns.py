"""The turns of a stored session: where they are in its log, and where they begin in a context (runtime spec 4.6).

The log says what the turns were. The context does not: reminders, notifications, checkpoint names and summaries are
user messages as well, commands leave no message or a different one, and compaction removes the older ones.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kimi.domain.command import Command, parse_command
from kimi.domain.content.message import Message, message_text
from kimi.domain.content.parts import ContentPart, UserInput, as_parts, join_text
from kimi.domain.history.session import CheckpointRecord, ContextRecord, UsageRecord

TurnMarkKind: TypeAlias = Literal[
    "TurnBegin", "TurnEnd", "StepBegin", "StepRetry", "SteerInput", "ContentPart", "ToolCall"
]

_CHECKPOINT_NAME = re.compile(r"\s*<system>CHECKPOINT \d+</system>\s*")
_FLOW_PREFIX = "flow:"
_SKILL_PREFIX = "skill:"
_RESET_COMMANDS = frozenset({"clear", "reset", "compact"})


@dataclass(frozen=True, slots=True)
class TurnMark:
    """An event of the log that belongs to a turn: its position, its type and the user's input.

    `detail` is the text of a content part, or the id of a call.
    """

    position: int
    kind: TurnMarkKind
    user_input: UserInput = ""
    detail: str = ""


@dataclass(slots=True)
class PastPrompt:
    """A prompt that a turn sent to the model; a flow has one for each node.

    `steps` counts the steps that followed; `text` and `call_id` are the beginning of the first step's answer.
    """

    turn: int
    user_input: UserInput
    steps: int = 0
    text: str = ""
    call_id: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether a step followed. Then the message was in the history."""
        return self.steps > 0


@dataclass(slots=True)
class PastTurn:
    """A turn as the user sees it, with the turns that ran inside of it.

    `begin` and `end` are positions in the log, the end exclusive; `end` is None for a turn that was cut off.
    """

    index: int
    user_input: UserInput
    begin: int
    end: int | None = None
    prompts: list[PastPrompt] = field(default_factory=list[PastPrompt])
    steers: list[UserInput] = field(default_factory=list[UserInput])

    @property
    def command(self) -> Command | None:
        """The command that the turn ran, or None."""
        return parse_command(join_text(self.user_input))

    @property
    def has_prompted_model(self) -> bool:
        """Whether the turn put anything into the history."""
        return any(prompt.is_answered for prompt in self.prompts)

    @property
    def has_reset_context(self) -> bool:
        """Whether the turn started the context anew. Where commands are off, the model has answered such a text."""
        named = self.command is not None and self.command.name in _RESET_COMMANDS
        return named and not self.has_prompted_model


def collect_past_turns(marks: Iterable[TurnMark]) -> list[PastTurn]:
    """Collect the turns in a log, oldest first.

    A turn within a turn is part of it; a turn that was cut off ends at the next one.
    """
    turns: list[PastTurn] = []
    depth = 0
    for mark in marks:
        if mark.kind == "TurnBegin":
            if not (depth == 1 and _is_nested_turn(turns[-1], mark.user_input)):
                turns.append(PastTurn(len(turns), mark.user_input, mark.position))
                depth = 0
            turns[-1].prompts.append(PastPrompt(turns[-1].index, mark.user_input))
            depth += 1
        elif depth:
            _apply_mark(turns[-1], mark)
            depth -= mark.kind == "TurnEnd"
            if not depth:
                turns[-1].end = mark.position + 1
    return turns


def _apply_mark(turn: PastTurn, mark: TurnMark) -> None:
    prompt = turn.prompts[-1]
    if mark.kind == "StepBegin":
        prompt.steps += 1
    elif mark.kind == "SteerInput":
        turn.steers.append(mark.user_input)
    elif prompt.steps != 1:
        return
    elif mark.kind == "StepRetry":
        prompt.text = prompt.call_id = ""
    elif mark.kind == "ContentPart":
        prompt.text = prompt.text or mark.detail
    elif mark.kind == "ToolCall":
        prompt.call_id = prompt.call_id or mark.detail


def _is_nested_turn(turn: PastTurn, user_input: UserInput) -> bool:
    """Return whether this input begins a turn inside the open `turn`, which is a flow or a loop.

    Otherwise the open turn was cut off.
    """
    if turn.prompts[0].is_answered:
        return False
    if turn.command is not None and turn.command.name.startswith(_FLOW_PREFIX):
        return True
    return user_input == turn.user_input or "<choice>" in join_text(user_input)


@dataclass(frozen=True, slots=True)
class IndexedContext:
    """Records, with the positions at which turns prompted the model.

    `turn_starts` holds pairs of position and turn, both ascending.
    """

    records: Sequence[ContextRecord]
    turn_starts: Sequence[tuple[int, int]]

    def has_turn_after(self, turn: int) -> bool:
        """Return whether the context holds a message of a later turn."""
        return bool(self.turn_starts) and self.turn_starts[-1][1] > turn


def index_context(records: Sequence[ContextRecord], turns: Sequence[PastTurn]) -> IndexedContext:
    """Find where the turns begin among the messages."""
    prompts = [prompt for turn in turns for prompt in turn.prompts]
    found = _locate_answered_prompts(records, prompts)
    found |= _locate_other_prompts(records, prompts, found)
    return IndexedContext(records, sorted((position, prompts[index].turn) for index, position in found.items()))


def _locate_answered_prompts(records: Sequence[ContextRecord], prompts: Sequence[PastPrompt]) -> dict[int, int]:
    """Map the answered prompts to positions: their messages are there if the context is of that time."""
    places = _index_user_texts(records)
    found: dict[int, int] = {}
    limit = len(records)
    for index in range(len(prompts) - 1, -1, -1):
        if prompts[index].is_answered:
            known = places.get(join_text(prompts[index].user_input), [])
            for at in range(bisect_left(known, limit) - 1, -1, -1):
                if _find_first_answer(records, known[at]) and _is_message_of(records, known[at], prompts[index]):
                    found[index] = limit = known[at]
                    break
    return found


def _index_user_texts(records: Sequence[ContextRecord]) -> dict[str, list[int]]:
    """Map the text of each user message to the positions at which it stands."""
    places: dict[str, list[int]] = {}
    for position, record in enumerate(records):
        if isinstance(record, Message) and record.role == "user":
            places.setdefault(join_text(record.content), []).append(position)
    return places


def _is_message_of(records: Sequence[ContextRecord], position: int, prompt: PastPrompt) -> bool:
    """Return whether the record is the message of the prompt.

    The same text may have been sent often: the answers distinguish the messages.
    """
    if not _is_user_message_of(records[position], as_parts(prompt.user_input)):
        return False
    answer = _find_first_answer(records, position)
    if answer is None:
        return True
    text = message_text(answer)
    calls = [call.id for call in answer.tool_calls]
    return text.startswith(prompt.text) and bool(text) <= bool(prompt.text) and calls[:1] == _as_list(prompt.call_id)


def _as_list(text: str) -> list[str]:
    return [text] if text else []


def _find_first_answer(records: Sequence[ContextRecord], position: int) -> Message | None:
    """Return the first answer of the model; None if it was prompted again before it answered."""
    checkpoints = 0
    for record in records[position + 1 :]:
        if isinstance(record, CheckpointRecord):
            checkpoints += 1
        if checkpoints > 1:
            return None
        if isinstance(record, Message) and record.role == "assistant":
            return record
    return None


def _locate_other_prompts(
    records: Sequence[ContextRecord], prompts: Sequence[PastPrompt], located: Mapping[int, int]
) -> dict[int, int]:
    """Locate the other prompts: those of skills, whose messages read differently, and those without an answer.

    Before the first located prompt the search starts with the newest, because older ones may be gone; after the last
    located one it starts with the oldest, because newer ones may be in a newer context.
    """
    found: dict[int, int] = {}
    limit, rest = len(records), list[int]()
    for index in range(len(prompts) - 1, -1, -1):
        if index not in located:
            rest.append(index)
            continue
        if limit == len(records):
            found |= _locate_in_gap(records, prompts, rest[::-1], range(located[index] + 1, limit))
        else:
            found |= _locate_in_gap(records, prompts, rest, range(limit - 1, located[index], -1))
        limit, rest = located[index], []
    return found | _locate_in_gap(records, prompts, rest, range(limit - 1, -1, -1))


def _locate_in_gap(
    records: Sequence[ContextRecord], prompts: Sequence[PastPrompt], missing: Sequence[int], positions: Iterable[int]
) -> dict[int, int]:
    """Return positions for the `missing` prompts; both arguments are in search order."""
    found: dict[int, int] = {}
    pending = list(missing)
    for position in filter(lambda one: _is_user_message(records[one]), positions):
        place = next(
            (i for i, index in enumerate(pending) if _may_begin_prompt(records, position, prompts[index])), None
        )
        if place is not None:
            found[pending[place]] = position
            del pending[: place + 1]
    return found


def _may_begin_prompt(records: Sequence[ContextRecord], position: int, prompt: PastPrompt) -> bool:
    """Return whether this record may be the message of the prompt."""
    record = records[position]
    if _is_message_of(records, position, prompt):
        return True
    command = parse_command(join_text(prompt.user_input))
    if not prompt.is_answered or command is None or not command.name.startswith(_SKILL_PREFIX):
        return False
    if _is_checkpoint_name(record) or not position:
        return False
    following = next((one for one in records[position + 1 :] if not isinstance(one, UsageRecord)), None)
    return _is_checkpoint(records[position - 1]) and (following is None or isinstance(following, CheckpointRecord))


def _is_user_message_of(record: ContextRecord, parts: tuple[ContentPart, ...]) -> bool:
    return isinstance(record, Message) and record.role == "user" and record.content == parts


def _is_user_message(record: ContextRecord) -> bool:
    return isinstance(record, Message) and record.role == "user"


def _is_checkpoint(record: ContextRecord) -> bool:
    return isinstance(record, CheckpointRecord) or _is_checkpoint_name(record)


def _is_checkpoint_name(record: ContextRecord) -> bool:
    """Return whether the record is the message that names a checkpoint to the model."""
    if not isinstance(record, Message) or record.role != "user":
        return False
    return _CHECKPOINT_NAME.fullmatch(message_text(record)) is not None


def select_contexts_after(
    turn: int, contexts: Iterable[Sequence[ContextRecord]], turns: Sequence[PastTurn]
) -> list[Sequence[ContextRecord]]:
    """Return the context at the end of a turn, then the contexts that it had replaced, newest first.

    `turn` is -1 for the state before the first turn. `contexts` holds the present context, then those that it replaced,
    newest first. What was summarised later is taken from the context that still held it, as far as that exists.
    """
    chosen = previous = None
    rest = iter(contexts)
    for records in rest:
        context = index_context(records, turns)
        if chosen is None or context.has_turn_after(turn):
            chosen = context
            continue
        if context.turn_starts:
            previous = context
            break
    if chosen is None:
        return []
    if previous is not None and _is_previous_current(turn, previous, turns):
        chosen, previous = previous, None
    return [_cut_after_turn(chosen, turn, turns), *([previous.records] if previous is not None else []), *rest]


def _is_previous_current(turn: int, previous: IndexedContext, turns: Sequence[PastTurn]) -> bool:
    """Return whether `previous` was still in use at the end of the turn.

    Then a command has replaced it before the next prompt.
    """
    prompting = [one.index for one in turns if one.has_prompted_model]
    last = max((index for index in prompting if index <= turn), default=-1)
    following = min((index for index in prompting if index > turn), default=len(turns))
    if previous.turn_starts[-1][1] != last or any(one.has_reset_context for one in turns[last + 1 : turn + 1]):
        return False
    return any(one.has_reset_context for one in turns[turn + 1 : following])


def _cut_after_turn(context: IndexedContext, turn: int, turns: Sequence[PastTurn]) -> list[ContextRecord]:
    """Return the records before the first one of a later turn."""
    records = list(context.records)
    following = next((found for found in context.turn_starts if found[1] > turn), None)
    if following is not None:
        del records[following[0] :]
        while records and _is_checkpoint(records[-1]):
            records.pop()
    if turn < 0:  # any message before the first remaining turn refers to turns that are gone
        return [record for record in records if not isinstance(record, Message | UsageRecord)]
    kept = {position for position, _ in context.turn_starts}
    last = following[1] if following is not None else len(turns)
    if any(one.command is not None for one in turns[turn + 1 : last]):
        _drop_command_messages(records, kept, turns[turn])
    return records


def _drop_command_messages(records: list[ContextRecord], turn_positions: set[int], turn: PastTurn) -> None:
    """Remove the messages that later commands left for the model: they stand behind the turn's last answer."""
    steers = [as_parts(steer) for steer in turn.steers]
    while records and len(records) - 1 not in turn_positions:
        last = records[-1]
        if not (isinstance(last, Message) and last.role == "user") or last.content in steers:
            break
        records.pop()
