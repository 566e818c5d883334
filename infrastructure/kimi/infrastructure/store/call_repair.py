"""Answers the calls that a crash left open with the results in the event log (runtime spec 4.7, R-63)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kimi.domain.content.message import Message
from kimi.domain.history.history import find_unanswered_calls, repair_records
from kimi.domain.history.session import ContextRecord
from kimi.domain.tools.tool import ToolReturnValue, build_model_result
from kimi.infrastructure.store.event_line import find_last_step_results


def answer_open_calls(
    records: Sequence[ContextRecord], newest_lines: Callable[[], Iterable[bytes]]
) -> tuple[list[ContextRecord], bool]:
    """Return the records with every call answered, and whether anything had to be changed.

    `newest_lines` returns the lines of the event log, newest first; it is called only if the last assistant message has
    an unanswered call. Raises what `newest_lines` raises.
    """
    open_ids = {call.id for call in find_unanswered_calls([one for one in records if isinstance(one, Message)])}
    known: dict[str, ToolReturnValue] = {}
    if open_ids:
        found = find_last_step_results(newest_lines())
        # The log does not say which tool returned a result, so none stays exact.
        known = {call_id: build_model_result(result, None) for call_id, result in found.items() if call_id in open_ids}
    return repair_records(records, known.get)
