"""What a subagent says, on its way to the conversation that started it (wire spec 4.3, 7.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kimi.application.codec.envelope import encode_event
from kimi.application.ports import Now, SessionFiles
from kimi.domain.content.stream import PART_TYPES, PartMerger
from kimi.domain.events.event import REQUEST_TYPES, ApprovalResponse, Event, SubagentEvent

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentIdentity

_UNWRAPPED_TYPES = (*REQUEST_TYPES, ApprovalResponse)
"""What the person deals with goes to the top level as it is."""


class SubagentStream:
    """Records the events of a subagent in its own log, then hands them on in `SubagentEvent`s.

    Text and tool calls are handed on merged, not in pieces; of a subagent in the background requests only. `post` takes
    an event without waiting.
    """

    def __init__(
        self, identity: SubagentIdentity, files: SessionFiles, now: Now, emit_nowait: Callable[[Event], None]
    ) -> None:
        self._identity = identity
        self._files = files
        self._now = now
        self._emit_nowait = emit_nowait
        self._merger = PartMerger()

    def send(self, event: Event) -> None:
        """Record and hand on what is complete with this event. Raises StoreFailed."""
        if isinstance(event, PART_TYPES):
            for done in self._merger.push(event):
                self._forward(done)
            return
        for done in self._merger.flush():
            self._forward(done)
        if isinstance(event, _UNWRAPPED_TYPES):
            self._emit_nowait(event)
        else:
            self._forward(event)

    def _forward(self, event: Event) -> None:
        self._files.append_event(encode_event(event), self._now())
        subagent = self._identity
        if subagent.task_id is not None:
            return  # beside all turns: the stream tells of its requests and of its end only (wire spec 4.2)
        self._emit_nowait(SubagentEvent(subagent.call_id, subagent.agent_id, subagent.type, event))
