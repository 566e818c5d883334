"""The event stream of a conversation: the one way to its driver (wire spec 4.3, 7.11, 8.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kimi.application.codec.envelope import encode_event
from kimi.application.conversation.event_channel import Delivery, EventChannel
from kimi.application.conversation.event_recorder import EventRecorder
from kimi.application.conversation.pending_requests import PendingRequests
from kimi.application.ports import Now, SessionFiles
from kimi.domain.client import Client
from kimi.domain.content.stream import PART_TYPES, PartMerger
from kimi.domain.events.event import INTERNAL_TYPES, REQUEST_TYPES, ApprovalResponse, Event, SubagentEvent

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentIdentity

_UNWRAPPED_TYPES = (*REQUEST_TYPES, ApprovalResponse)
"""What the user deals with goes to the top level as it is."""


class EventStream:
    """Events to the driver in order, the requests that wait for its client, and who that client is.

    An event is recorded first, then delivered. With a `parent` the stream is that of the `subagent`: what it says goes
    into a log of its own and, wrapped, onto the stream of its parent, whose channel, requests and client it shares.
    """

    def __init__(
        self,
        files: SessionFiles,
        now: Now,
        *,
        channel: EventChannel | None = None,
        parent: EventStream | None = None,
        subagent: SubagentIdentity | None = None,
    ) -> None:
        self.channel = parent.channel if parent else channel or EventChannel()
        self.pending_requests = parent.pending_requests if parent else PendingRequests()
        self.subagent = subagent
        self._client = parent.client if parent else Client()
        self._recorder = EventRecorder(files, now)
        self._relay = SubagentRelay(subagent, files, now, parent.emit_nowait) if parent and subagent else None

    @property
    def client(self) -> Client:
        """Who reads the events and answers the requests."""
        return self._client

    def set_client(self, client: Client) -> None:
        """Take what a client has said of itself. Only `negotiate_initialize` calls it."""
        self._client = client

    async def emit(self, event: Event) -> None:
        """Record an event, deliver it, then wait for room on the channel. Raises StoreFailed; the event is then not
        delivered. When it is cancelled the event is out."""
        self.emit_nowait(event)
        await self.channel.wait_for_capacity()

    def emit_nowait(self, event: Event) -> None:
        """`emit` without waiting for room on the channel. Raises StoreFailed."""
        if self._relay is not None:
            self._relay.send(event)
        else:
            self.channel.put_nowait(Delivery(event, self._recorder.record(event)))

    async def join(self) -> None:
        """Wait until the driver has dealt with every event; a subagent's are waited for by its parent."""
        if self._relay is None:
            await self.channel.join()

    def flush(self) -> None:
        """Write the part of the event log that is still being merged."""
        self._recorder.flush()

    def observe_requests(self, observe: Callable[[Event], None]) -> None:
        """Call `observe` for each request and answer of this subagent, before the driver sees it. It must not raise."""
        if self._relay is not None:
            self._relay.observe_requests = observe


class SubagentRelay:
    """Records the events of a subagent in its own log, then hands them on in `SubagentEvent`s.

    Text and tool calls are handed on merged, not in pieces; of a subagent in the background requests only.
    `emit_nowait` takes an event without waiting.
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
        """Record and hand on what is complete with this event. Raises StoreFailed."""
        if isinstance(event, PART_TYPES):
            for done in self._merger.push(event):
                self._forward(done)
            return
        if isinstance(event, INTERNAL_TYPES):
            self._emit_nowait(event)  # without a flush, as in `EventRecorder`; it names its agent itself
            return
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
            return  # beside all turns: the stream tells of its requests and of its end only (wire spec 4.2)
        self._emit_nowait(SubagentEvent(subagent.call_id, subagent.agent_id, subagent.type, event))
