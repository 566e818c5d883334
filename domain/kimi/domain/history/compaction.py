"""Compaction: when it is due, what it keeps, its prompt, and the new context (runtime spec 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

from kimi.domain.content.message import Message, estimate_message, user_message
from kimi.domain.content.parts import ContentPart, TextPart, ThinkPart, estimate_tokens
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord
from kimi.domain.tools.tool import escape_host_tags
from kimi.domain.turn import TurnLimits

KEPT_MESSAGES = 2
"""How many messages with the roles user and assistant are kept unchanged, with the tool results among them."""

SUMMARY_HEADER = "<system>The earlier conversation was compacted to save space. The compaction output follows.</system>"
"""The first part of the message that replaces what was summarised."""

COMPACTION_SYSTEM_PROMPT = (
    "You condense the conversations of a coding agent, so that it can go on working from your text alone."
)

_INSTRUCTIONS = """\
The messages above are the earlier part of a conversation between a person and a coding agent. Write the text that \
will stand in their place: the agent will see nothing else of them. Keep, in this order:

1. what the person wants, with every wish, decision and restriction that still holds, in their words where they matter;
2. the state of the work: what is done, what is under way, what is left;
3. facts that were found out: paths, names, commands and their outcome, versions, the wording of errors;
4. code and file content that will be needed again, exactly as it is;
5. mistakes that were made, and how they were or can be put right.

Leave out what is settled and of no further use. Do not answer the person and do not go on with the work: write the \
text only, in the language of the conversation."""

_USER_INSTRUCTION_HEADER = "The person asks the following of this text. It counts more than the instructions above:"

# The lengths in characters to which a text, a call's arguments and a result are cut: the first row that fits the window
# is used. Text of the user and of the model is cut only when nothing else helps.
_LENGTH_LIMITS = ((1_000_000, 1_000, 2_000), (20_000, 500, 500), (4_000, 200, 200), (800, 80, 80))


def is_compaction_due(tokens: int, window: int, limits: TurnLimits) -> bool:
    """Return whether a context is too full. A window no larger than the reserve goes by the ratio alone (R-102)."""
    if tokens >= round(limits.compaction_ratio * window, 6):  # rounded: in floats 0.55 * 100 is above 55
        return True
    return window > limits.reserved_tokens and tokens + limits.reserved_tokens >= window


def retry_growth_tokens(window: int) -> int:
    """Return by how many tokens a context grows before a compaction that failed or did not help is tried again."""
    return max(window // 20, 1)


def split_messages(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Split messages into those to summarise and those to keep.

    Kept are the last two messages of user and assistant, and everything after the first of them. Results stand behind
    their call, so none is separated from it.
    """
    left = KEPT_MESSAGES
    for index in range(len(messages) - 1, -1, -1):
        left -= messages[index].role in ("user", "assistant")
        if not left:
            return messages[:index], messages[index:]
    return (), messages


def is_summary(message: Message) -> bool:
    """Return whether `message` is the one that replaces what was summarised."""
    return message.role == "user" and message.content[:1] == (TextPart(SUMMARY_HEADER),)


def has_unsummarised_messages(older: Sequence[Message]) -> bool:
    """Return whether there is anything to summarise beside an earlier summary."""
    return any(not is_summary(message) for message in older)


def build_compaction_request(older: Sequence[Message], instruction: str, token_budget: int) -> Message:
    """Build the one message that asks for the summary.

    `token_budget` is its size limit in estimated tokens; `instruction` is the user's, or empty.
    """
    ending = f"\n\n{_INSTRUCTIONS}"
    if instruction:
        ending += f"\n\n{_USER_INSTRUCTION_HEADER}\n{instruction}"
    text = ""
    for lengths in _LENGTH_LIMITS:
        text = "\n\n".join(_flatten_message(number, message, lengths) for number, message in enumerate(older, 1))
        if estimate_tokens(text) + estimate_tokens(ending) <= token_budget:
            return user_message(text + ending)
    return user_message(_elide_middle(text, max(token_budget - estimate_tokens(ending), 1)) + ending)


def _flatten_message(number: int, message: Message, lengths: tuple[int, int, int]) -> str:
    """Render a message as text: a header, its text, placeholders for its media, its calls."""
    of_text, of_arguments, of_result = lengths
    limit = of_result if message.role == "tool" else of_text
    lines = [f"## Message {number}: {message.role}"]
    if message.tool_call_id is not None:
        lines[0] += f" (result of {message.tool_call_id})"
    texts = [_elide_middle(text, limit) for part in message.content if (text := _part_text(part))]
    # Cut, the text of a file no longer stands between its tags.
    lines += map(escape_host_tags, texts) if message.role == "tool" else texts
    for call in message.tool_calls:
        arguments = _elide_middle(call.function.arguments or "", of_arguments)
        lines.append(f"[calls {call.function.name} as {call.id} with {arguments}]")
    return "\n".join(lines)


def _part_text(part: ContentPart) -> str:
    if isinstance(part, TextPart):
        return part.text
    return "" if isinstance(part, ThinkPart) else f"[{part.type.removesuffix('_url')} omitted]"


def _elide_middle(text: str, limit: int) -> str:
    """Return the beginning and the end of a text that is too long; the end of an output often holds its outcome."""
    if len(text) <= limit:
        return text
    end = limit // 3
    left_out = len(text) - limit
    return f"{text[: limit - end]} [… {left_out} characters left out …] {text[len(text) - end :]}"


def build_compacted_context(
    system_prompt: str | None,
    summary: Sequence[TextPart],
    summary_tokens: int | None,
    kept: Sequence[Message],
    reminder: str = "",
) -> list[ContextRecord]:
    """Build the records of the new context.

    An empty `summary` means that there was nothing to summarise: `kept` holds everything. `reminder` names what the
    summary may have lost; it comes last.
    """
    records: list[ContextRecord] = [] if system_prompt is None else [SystemPromptRecord(system_prompt)]
    records.append(CheckpointRecord(0))
    tokens = sum(map(estimate_message, kept))
    if summary:
        # A model wrote it, from texts of anybody.
        texts = (TextPart(escape_host_tags(part.text)) for part in summary)
        summary_message = Message("user", (TextPart(SUMMARY_HEADER), *texts))
        tokens += summary_tokens or estimate_message(summary_message)
        records.append(summary_message)
        if reminder:
            kept = [*kept, user_message(reminder)]
            tokens += estimate_message(kept[-1])
    return [*records, *kept, UsageRecord(max(tokens, 1))]
