"""Build the updates of `session/load` from the record of a session (acp spec 4.6).

The translator for live sessions makes the updates, so ids and texts are those that the client saw. They are then
folded: a call becomes one `tool_call` in its last state, at the position of its announcement; consecutive text chunks
are joined; only the last plan is sent, at the end.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator

from kimi.application.codec.event_json import decode_event
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import REQUEST_TYPES, Event
from kimi.interfaces.acp.updates.result_content import JsonDict
from kimi.interfaces.acp.updates.session_updates import SessionUpdateTranslator

logger = logging.getLogger(__name__)

_FINAL_STATUSES = ("completed", "failed")
_CHUNK_KINDS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_SKIPPED_KINDS = ("usage_update", "current_mode_update", "config_option_update", "plan_update")


def decode_stored_events(recorded: Iterable[JsonObject]) -> Iterator[Event]:
    """Decode recorded envelopes; one that is not understood is skipped with a warning (A-54)."""
    for envelope in recorded:
        event = decode_event(envelope)
        if event is None:
            logger.warning("a recorded message is not understood and is left out of the replay")
        else:
            yield event


def build_replay_updates(
    events: Iterable[Event], translator: SessionUpdateTranslator, *, is_running: bool = False
) -> Iterator[list[JsonObject]]:
    """Yield the updates of a replay, reading the events lazily: after each event those that are final, often none.

    `translator` must be new, made with `is_replaying`.

    Afterwards the translator knows the turns and the context usage. Calls without a result are failed, unless the turn
    `is_running`: then they stay open for the live updates that follow.
    """
    fold = _ReplayFold()
    for event in events:
        if isinstance(event, REQUEST_TYPES):
            continue  # a replay must not ask the user again
        for update in translator.translate(event):
            fold.push(update)
        yield fold.pop_final()
    if not is_running:
        for update in translator.close_open_calls(include_background=True):
            fold.push(update)
    yield fold.pop_rest()


class _ReplayFold:
    """Holds updates back, in order, while a call before them is open: later updates are folded into its `tool_call`."""

    def __init__(self) -> None:
        self._queue: deque[JsonDict] = deque()
        self._open_calls: dict[str, JsonDict] = {}
        self._plan: JsonObject | None = None
        self._last_texts: list[str] = []
        """The texts of the last chunk that follow its own."""

    def push(self, update: JsonObject) -> None:
        """Fold in an update."""
        kind = update["sessionUpdate"]
        if kind == "plan":
            self._plan = update
        elif kind == "tool_call":
            self._append(shape := dict(update))
            if shape["status"] not in _FINAL_STATUSES:
                self._open_calls[shape["toolCallId"]] = shape
        elif kind == "tool_call_update":
            self._apply_call_update(update)
        elif kind == "compaction_update":
            if update["status"] != "in_progress":
                self._append(dict(update))
        elif kind not in _SKIPPED_KINDS:
            self._append_chunk(update)

    def _apply_call_update(self, update: JsonObject) -> None:
        shape = self._open_calls.get(update["toolCallId"])
        if shape is None:
            return
        shape.update({key: value for key, value in update.items() if key != "sessionUpdate"})
        if shape["status"] in _FINAL_STATUSES:
            del self._open_calls[shape["toolCallId"]]

    def _append_chunk(self, update: JsonObject) -> None:
        """Append a chunk, joined with the chunk before it if both belong to one message."""
        last = self._queue[-1] if self._queue else None
        if last is not None and _is_continuation(last, update):
            self._last_texts.append(update["content"]["text"])
        else:
            self._append(dict(update))

    def _append(self, update: JsonDict) -> None:
        self._join_texts()
        self._queue.append(update)

    def _join_texts(self) -> None:
        """Complete the last chunk. Its texts are joined once: joined one by one, each would copy all before it."""
        if self._last_texts:
            chunk = self._queue[-1]
            chunk["content"] = chunk["content"] | {"text": "".join([chunk["content"]["text"], *self._last_texts])}
            self._last_texts.clear()

    def pop_final(self) -> list[JsonObject]:
        """Remove and return what is before the first open call, except the last update: it may be continued."""
        found: list[JsonObject] = []
        while len(self._queue) > 1 and self._queue[0].get("toolCallId") not in self._open_calls:
            found.append(self._queue.popleft())
        return found

    def pop_rest(self) -> list[JsonObject]:
        """Remove and return everything that is left, the plan last."""
        self._join_texts()
        found = [*self._queue, *([] if self._plan is None else [self._plan])]
        self._queue.clear()
        return found


def _is_continuation(last: JsonDict, update: JsonObject) -> bool:
    return (
        last["sessionUpdate"] in _CHUNK_KINDS
        and last["sessionUpdate"] != "user_message_chunk"
        and last["sessionUpdate"] == update["sessionUpdate"]
        and last.get("messageId") == update.get("messageId")
        and last["content"]["type"] == update["content"]["type"] == "text"
    )
