"""The record of a session as the updates of `session/load` (acp spec 4.6).

The live translator makes the updates, so ids and texts are those that the client saw; they are then folded: a call is
one `tool_call` in its last state, at the place where it was made; text comes in runs; of plans only the last counts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic_core import from_json

from kimi.application.codec.event_json import decode_event
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import REQUEST_TYPES, Event
from kimi.interfaces.acp.updates.result_content import JsonDict
from kimi.interfaces.acp.updates.session_updates import SessionUpdateTranslator

logger = logging.getLogger(__name__)

_FINAL_STATUSES = ("completed", "failed")
_CHUNK_KINDS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_SKIPPED_KINDS = ("usage_update", "current_mode_update", "config_option_update", "plan_update")


def decode_stored_events(envelopes: Iterable[bytes]) -> Iterator[Event]:
    """The events in recorded envelopes; what is not understood is left out with a warning (A-54)."""
    for envelope in envelopes:
        try:
            source: Any = from_json(envelope)
        except ValueError:
            source = None
        event = decode_event(cast("dict[str, Any]", source)) if isinstance(source, dict) else None
        if event is None:
            logger.warning("a recorded message is not understood and is left out of the replay")
        else:
            yield event


def build_replay_updates(
    events: Iterable[Event], translator: SessionUpdateTranslator, *, is_running: bool = False
) -> Iterator[JsonObject]:
    """The updates of a replay, read as they are asked for. `translator` is new, made with `replaying`.

    Afterwards it knows the turns, the use of the context and the plan; calls that have no result are failed, unless the
    turn `is_running`: then they stay open for the live updates that follow.
    """
    fold = _ReplayFold()
    for event in events:
        if isinstance(event, REQUEST_TYPES):
            continue  # nobody is asked again
        for update in translator.translate(event):
            yield from fold.push(update)
    if not is_running:
        for update in translator.close_open_calls(include_background=True):
            yield from fold.push(update)
    yield from fold.pop_rest()


class _ReplayFold:
    """Updates that cannot go yet, in order: those behind a call that has no end so far."""

    def __init__(self) -> None:
        self._queue: deque[JsonDict] = deque()
        self._open_calls: dict[str, JsonDict] = {}
        self._plan: JsonObject | None = None

    def push(self, update: JsonObject) -> Iterator[JsonObject]:
        """Take an update; gives those that can go."""
        kind = update["sessionUpdate"]
        if kind == "plan":
            self._plan = update
        elif kind == "tool_call":
            self._queue.append(shape := dict(update))
            if shape["status"] not in _FINAL_STATUSES:
                self._open_calls[shape["toolCallId"]] = shape
        elif kind == "tool_call_update":
            self._apply_call_update(update)
        elif kind == "compaction_update":
            if update["status"] != "in_progress":
                self._queue.append(dict(update))
        elif kind not in _SKIPPED_KINDS:
            self._append_chunk(update)
        yield from self._pop_ready()

    def _apply_call_update(self, update: JsonObject) -> None:
        shape = self._open_calls.get(update["toolCallId"])
        if shape is None:
            return
        shape.update({key: value for key, value in update.items() if key != "sessionUpdate"})
        if shape["status"] in _FINAL_STATUSES:
            del self._open_calls[shape["toolCallId"]]

    def _append_chunk(self, update: JsonObject) -> None:
        """Append a chunk, to the text before it when both are of one message."""
        last = self._queue[-1] if self._queue else None
        if last is not None and _is_continuation(last, update):
            last["content"] = last["content"] | {"text": last["content"]["text"] + update["content"]["text"]}
        else:
            self._queue.append(dict(update))

    def _pop_ready(self) -> Iterator[JsonObject]:
        """What no open call holds up, but for the last: the next chunk may continue it."""
        while len(self._queue) > 1 and self._queue[0].get("toolCallId") not in self._open_calls:
            yield self._queue.popleft()

    def pop_rest(self) -> Iterator[JsonObject]:
        """Everything that is left, the plan at last."""
        yield from self._queue
        self._queue.clear()
        if self._plan is not None:
            yield self._plan


def _is_continuation(last: JsonDict, update: JsonObject) -> bool:
    return (
        last["sessionUpdate"] in _CHUNK_KINDS
        and last["sessionUpdate"] != "user_message_chunk"
        and last["sessionUpdate"] == update["sessionUpdate"]
        and last.get("messageId") == update.get("messageId")
        and last["content"]["type"] == update["content"]["type"] == "text"
    )
