"""Answering the calls that a crash left open, from what the event log knows (runtime spec 4.7, R-63)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kimi.domain.content.message import Message
from kimi.domain.history.history import repaired, unanswered_calls
from kimi.domain.history.session import ContextRecord
from kimi.domain.tools.tool import ToolReturnValue, neutralised
from kimi.infrastructure.store.event_line import results_of_last_step


def answered(
    records: Sequence[ContextRecord], newest_lines: Callable[[], Iterable[bytes]]
) -> tuple[list[ContextRecord], bool]:
    """The records with every call answered, and whether anything had to be changed.

    `newest_lines` gives the lines of the event log, newest first; it is asked only when the last exchange misses
    an answer. Raises what `newest_lines` raises.
    """
    waiting = {call.id for call in unanswered_calls([one for one in records if isinstance(one, Message)])}
    known: dict[str, ToolReturnValue] = {}
    if waiting:
        found = results_of_last_step(newest_lines())
        # Which tool gave a result is not known here: host tags are neutralised as in results of third parties.
        known = {call_id: neutralised(result) for call_id, result in found.items() if call_id in waiting}
    return repaired(records, known.get)
