"""The event stream of a conversation, through which all events reach its driver (wire spec 4.3, 7.11, 8.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kimi.application.codec.envelope import encode_event
from kimi.application.conversation.event_channel import Delivery, EventChannel
from kimi.application.conversation.event_recorder import EventRecorder
from kimi.application.conversation.pending_requests import PendingRequests
from kimi.application.ports import Now, ObserveEvent, SessionFiles
from kimi.domain.client import Client
from kimi.domain.content.stream import PART_TYPES, PartMerger
from kimi.domain.events.event import INTERNAL_TYPES, REQUEST_TYPES, ApprovalResponse, Event, SubagentEvent

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentIdentity

_UNWRAPPED_TYPES = (*REQUEST_TYPES, ApprovalResponse)
"""The events of a subagent that are sent unwrapped, because the user answers them or they close such a request."""


class EventStream:
    """The events for the driver in order, the requests that wait for its client, and the client itself.

    An event is recorded first, then delivered, then shown to `observe`. With a `parent` this is the stream
    of `subagent`: its events go into a log of their own and, wrapped, to the stream of the parent, whose channel,
    requests and client it shares.
    """

    def __init__(
        self,
        files: SessionFiles,
        now: Now,
        *,
        observe: ObserveEvent | None = None,
        channel: EventChannel | None = None,
        parent: EventStream | None = None,
        subagent: SubagentIdentity | None = None,
    ) -> None:
        self.channel = parent.channel if parent else channel or EventChannel()
        self.pending_requests = parent.pending_requests if parent else PendingRequests()
        self.subagent = subagent
        self._client = parent.client if parent else Client()
        self._observe = observe
        self._recorder = EventRecorder(files, now)
        self._relay = SubagentRelay(subagent, files, now, parent.emit_nowait) if parent and subagent else None

    @property
    def client(self) -> Client:
        """The client that reads the events and answers the requests."""
        return self._client

    def set_client(self, client: Client) -> None:
        """Set the client, as it has described itself. Only `negotiate_initialize` calls this."""
        self._client = client

    async def emit(self, event: Event) -> None:
        """Record an event, deliver it, then wait while the channel is full.

        The event is delivered even when the call is cancelled. Raises StoreFailed; the event is then not delivered.
        """
        # Recorded and delivered without an await in between: the log and the driver see the same order of events.
        self.emit_nowait(event)
        await self.channel.wait_for_capacity()

    def emit_nowait(self, event: Event) -> None:
        """Record and deliver an event without waiting, even if the channel is full.

        Callers use it where a cancellation must not come between the event and their next line; they call
        `channel.wait_for_capacity` afterwards. Raises StoreFailed; the event is then not delivered.
        """
        if self._relay is not None:
            self._relay.send(event)
        else:
            self.channel.put_nowait(Delivery(event, self._recorder.record(event)))
            if self._observe is not None:
                self._observe(event)

    async def join(self) -> None:
        """Wait until the driver has handled every event. Returns at once for a subagent, whose parent's turn waits."""
        if self._relay is None:
            await self.channel.join()

    def flush(self) -> None:
        """Write the streamed part that is still being merged to the event log."""
        self._recorder.flush()

    def observe_requests(self, observe: Callable[[Event], None]) -> None:
        """Call `observe` for each request and answer of this subagent before the driver sees it.

        `observe` must not raise. Does nothing for the main agent.
        """
        if self._relay is not None:
            self._relay.observe_requests = observe


class SubagentRelay:
    """Records the events of a subagent in its own log, then forwards them in `SubagentEvent`s.

    Text and tool calls are forwarded merged, not in pieces. For a subagent in the background only requests and their
    answers are forwarded. `emit_nowait` is that of the parent's stream.
    """

    def __init__(
        self, identity: SubagentIdentity, files: SessionFiles, now: Now, emit_nowait: Callable[[Event], None]
    ) -> None:
        self._identity = identity
        self._files = files
        self._now = now
        self._emit_nowait = emit_nowait
        self._merger = PartMerger()
        self.observe_requests: Callable[[Event], None] | None = None

    def send(self, event: Event) -> None:
        """Record and forward everything that is complete with this event. Raises StoreFailed."""
        if isinstance(event, PART_TYPES):
            for done in self._merger.push(event):
                self._forward(done)
            return
        if isinstance(event, INTERNAL_TYPES):
            self._emit_nowait(event)  # without a flush, as in `EventRecorder`; unwrapped, as it holds the agent id
            return
        # The merged part was streamed before this event, so it goes first.
        for done in self._merger.flush():
            self._forward(done)
        if isinstance(event, _UNWRAPPED_TYPES):
            if self.observe_requests is not None:
                self.observe_requests(event)
            self._emit_nowait(event)
        else:
            self._forward(event)

    def _forward(self, event: Event) -> None:
        self._files.append_event(encode_event(event), self._now())
        subagent = self._identity
        if subagent.task_id is not None:
            return  # in the background: only its requests and its end are announced (wire spec 4.2)
        self._emit_nowait(SubagentEvent(subagent.call_id, subagent.agent_id, subagent.type, event))
