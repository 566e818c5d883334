"""Track the unfinished tool calls of a session, with nested calls and the requests about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kimi.domain.content.message import ToolCall
from kimi.domain.events.event import ApprovalResponse, SubagentEvent, ToolResult
from kimi.domain.events.request import ApprovalRequest, QuestionRequest
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import BackgroundTaskBlock
from kimi.interfaces.acp.updates.result_content import JsonDict, build_approval_content, text_content
from kimi.interfaces.acp.updates.tool_call_state import CallKey, ToolCallState
from kimi.interfaces.acp.updates.tool_presentation import UNKNOWN_PRESENTATION, ToolPresentation, shorten_middle

INTERRUPTED_TEXT: Final = "Interrupted."
_IN_BACKGROUND_TEXT: Final = "Approved. It runs in the background."
_REJECTED_TEXT: Final = "It was not approved."

FindPresentation = Callable[[str], "ToolPresentation | None"]
"""Return how calls of a tool look; None for an unknown tool."""


@dataclass(frozen=True, slots=True)
class CallingAgent:
    """The agent that makes calls: the main agent, or a subagent inside of a call.

    `call_id_prefix` begins the ids of a subagent's calls.
    """

    id: str | None = None
    call_id_prefix: str | None = None
    parent_call: CallKey | None = None
    type: str | None = None


MAIN_AGENT: Final = CallingAgent()


class ToolCallTracker:
    """Tracks all open calls. `find_display_name` returns the name of a tool for titles."""

    def __init__(
        self,
        work_dir: str,
        *,
        find_presentation: FindPresentation | None,
        find_display_name: Callable[[str], str],
    ) -> None:
        self._work_dir = work_dir
        self._find_presentation, self._find_display_name = find_presentation, find_display_name
        self._expected_changes: dict[CallKey, ChangedText] = {}
        self._open_calls: dict[CallKey, ToolCallState] = {}
        self._streaming_call: ToolCallState | None = None
        self._client_ids: dict[CallKey, str] = {}
        self._background_parents: set[CallKey] = set()
        """Calls whose agents may outlive them."""
        self._used_ids: set[str] = set()
        self._call_by_request: dict[str, CallKey] = {}
        self._turn_id = ""

    # Time

    @property
    def next_update_at(self) -> float | None:
        """When `collect_due_updates` has updates to return."""
        times = (call.next_update_at for call in self._open_calls.values())
        return min((time for time in times if time is not None), default=None)

    def collect_due_updates(self, now: float) -> list[JsonDict]:
        """Return the delayed updates that are due at `now`: titles of streaming calls."""
        found: list[JsonDict] = []
        for call in self._open_calls.values():
            if call.next_update_at is not None and call.next_update_at <= now:
                found += call.collect_due_updates(now)
        return found

    # The life of a call

    def start_turn(self, turn_id: str) -> None:
        """Count calls from now on as part of this turn."""
        self._turn_id = turn_id

    def discard_turn_state(self) -> None:
        """Drop the state that only the last turn needed."""
        self._client_ids = {key: whole for key, whole in self._client_ids.items() if key in self._background_parents}

    def find_call(self, call_id: str, agent_id: str | None = None) -> ToolCallState | None:
        """Return an open call; None if there is none with this id."""
        return self._open_calls.get((agent_id, call_id))

    def find_latest_call(self, tool: str) -> ToolCallState | None:
        """Return the last open call of the main agent to this tool."""
        found = [call for (agent, _), call in self._open_calls.items() if agent is None and call.tool == tool]
        return found[-1] if found else None

    def feed_arguments(self, piece: str | None) -> None:
        """Add a piece to the arguments of the streaming call."""
        if self._streaming_call is not None:
            self._streaming_call.feed_arguments(piece)

    def finish_streaming(self) -> list[JsonDict]:
        """Record that the arguments of the streaming call are complete."""
        call, self._streaming_call = self._streaming_call, None
        return [] if call is None else call.complete_arguments()

    @property
    def is_streaming(self) -> bool:
        """Whether the arguments of a call are streaming."""
        return self._streaming_call is not None

    def set_expected_change(self, key: CallKey, changed: ChangedText) -> None:
        """Record how the call would change a file; kept until the call ends."""
        self._expected_changes[key] = changed

    def mark_started(self, key: CallKey) -> list[JsonDict]:
        """Show that the tool of this call runs. Calls of background agents are not shown, so they are unknown here."""
        call = self._open_calls.get(key)
        return [] if call is None else call.begin()

    def fail_open_calls(self, text: str, *, include_background: bool = False) -> list[JsonDict]:
        """Fail all open calls, nested ones first. Calls of background agents stay open unless `include_background`."""
        self._streaming_call = None
        self._expected_changes.clear()
        found: list[JsonDict] = []
        for key in reversed(list(self._open_calls)):
            if include_background or not self._is_detached(key):
                found += self._fail_call(key, text)
        return found

    def _is_detached(self, key: CallKey) -> bool:
        """Whether the call belongs to a background agent, which may outlive the call that started it."""
        while (call := self._open_calls.get(key)) is not None:
            if call.parent_call is None:
                return call.is_placeholder
            key = call.parent_call
        return True

    def announce(self, event: ToolCall, agent: CallingAgent, *, is_recorded: bool = False) -> list[JsonDict]:
        """Announce a call of the model, as it begins to stream or as it was recorded."""
        name, key = event.function.name, (agent.id, event.id)
        found = self._fail_call(key, INTERRUPTED_TEXT)  # an earlier call with this id that never ended
        call = ToolCallState(
            self._make_client_id(event.id, agent),
            name,
            self._resolve_presentation(name),
            self._work_dir,
            display_name=self._format_display_name(name, agent),
            meta=_build_meta(name, agent),
        )
        self._open_calls[key], self._client_ids[key] = call, call.id
        call.parent_call = agent.parent_call
        found.append(call.announce(event.function.arguments, is_recorded=is_recorded))
        if agent is MAIN_AGENT:
            self._streaming_call = call
            return found
        return found + call.complete_arguments()

    def _make_client_id(self, call_id: str, agent: CallingAgent) -> str:
        """Return the id for the client; a number is added if the model repeats an id within a turn."""
        whole = f"{agent.call_id_prefix or self._turn_id}/{call_id}"
        count, found = 1, whole
        while found in self._used_ids:
            count += 1
            found = f"{whole}#{count}"
        self._used_ids.add(found)
        return found

    def _resolve_presentation(self, name: str) -> ToolPresentation:
        found = self._find_presentation(name) if self._find_presentation else None
        return found or UNKNOWN_PRESENTATION

    def _format_display_name(self, name: str, agent: CallingAgent) -> str:
        shown = self._find_display_name(name)
        return f"{shorten_middle(agent.type, 20)} › {shown}" if agent.type else shown

    def finish(self, event: ToolResult, agent: CallingAgent) -> list[JsonDict]:
        """Show the result of a call. Nested calls fail, unless the call continues in the background."""
        key = (agent.id, event.tool_call_id)
        goes_on = any(isinstance(block, BackgroundTaskBlock) for block in event.return_value.display)
        found = [] if goes_on else self._fail_children(key, INTERRUPTED_TEXT)
        if goes_on:
            self._background_parents.add(key)
        call, changed = self._open_calls.pop(key, None), self._expected_changes.pop(key, None)
        if call is not None:
            found += call.finish(event.return_value, changed)
        return found

    def _fail_children(self, parent: CallKey, text: str) -> list[JsonDict]:
        found: list[JsonDict] = []
        for key in [key for key, call in self._open_calls.items() if call.parent_call == parent]:
            found += self._fail_children(key, text) + self._fail_call(key, text)
        return found

    def _fail_call(self, key: CallKey, text: str) -> list[JsonDict]:
        call = self._open_calls.pop(key, None)
        return [] if call is None else call.fail(text)

    def interrupt_step(self, agent: CallingAgent, text: str) -> list[JsonDict]:
        """Fail the open calls of this agent, and those nested in them, because its step was interrupted."""
        found: list[JsonDict] = []
        for key in [key for key in self._open_calls if key[0] == agent.id]:
            found += self._fail_children(key, text) + self._fail_call(key, text)
        return found

    def resolve_agent(self, event: SubagentEvent, parent: CallingAgent) -> CallingAgent | None:
        """Return the subagent that sent `event`; None if the event does not name the call that it runs in."""
        if event.parent_tool_call_id is None:
            return None
        key = (parent.id, event.parent_tool_call_id)
        prefix = self._client_ids.get(key) or f"{parent.call_id_prefix or self._turn_id}/{event.parent_tool_call_id}"
        return CallingAgent(event.agent_id or event.parent_tool_call_id, prefix, key, event.subagent_type)

    # Requests about calls

    def add_request(self, request: ApprovalRequest | QuestionRequest) -> list[JsonDict]:
        """Record a pending request about a call; announce the call first if it is unknown."""
        key = self._find_call_key(request)
        found: list[JsonDict] = []
        if key not in self._open_calls:
            found += self._announce_placeholder(request, key)
        self._call_by_request[request.id] = key
        return found + self._open_calls[key].add_request(may_run=isinstance(request, ApprovalRequest))

    def _find_call_key(self, request: ApprovalRequest | QuestionRequest) -> CallKey:
        """Return the key of the call that a request is about; a question does not name its agent."""
        agent_id = request.agent_id if isinstance(request, ApprovalRequest) else None
        key = (agent_id, request.tool_call_id)
        if key in self._open_calls:
            return key
        return next((other for other in reversed(self._open_calls) if other[1] == request.tool_call_id), key)

    def _announce_placeholder(self, request: ApprovalRequest | QuestionRequest, key: CallKey) -> list[JsonDict]:
        """Announce a call that is known only from its request, because a client accepts no request without a call."""
        tool = request.sender if isinstance(request, ApprovalRequest) else "AskUserQuestion"
        kind = request.subagent_type if isinstance(request, ApprovalRequest) else None
        prefix = f"{self._turn_id}/{key[0]}" if key[0] else None  # a replay shows no requests, so none is counted
        agent = CallingAgent(key[0], prefix, type=kind)
        name = self._format_display_name(tool, agent)
        call = ToolCallState(
            self._make_client_id(key[1], agent),
            tool,
            self._resolve_presentation(tool),
            self._work_dir,
            display_name=name,
            meta={"toolName": tool},
        )
        call.is_placeholder = isinstance(request, ApprovalRequest) and request.source_kind == "background_agent"
        self._open_calls[key], self._client_ids[key] = call, call.id
        return [call.announce(None), *call.complete_arguments()]

    def apply_approval(self, event: ApprovalResponse) -> list[JsonDict]:
        """Apply the answer to an approval, whether it came from this client or not."""
        key = self._call_by_request.pop(event.request_id, (None, ""))
        call = self._open_calls.get(key)
        if call is None:
            return []
        call.open_requests -= 1
        if call.is_placeholder:
            del self._open_calls[key]
            return (
                call.fail(_REJECTED_TEXT)
                if event.response == "reject"
                else call.continue_in_background(_IN_BACKGROUND_TEXT)
            )
        if event.response != "reject":
            return call.begin()
        call.is_rejected = True
        return []

    def find_requested_call(self, request: ApprovalRequest | QuestionRequest) -> ToolCallState | None:
        """Return the call that waits for this answer; None if it has ended."""
        return self._open_calls.get(self._call_by_request.get(request.id, (None, "")))

    def release_question(self, request: QuestionRequest) -> None:
        """Record that a question was answered."""
        call = self._open_calls.get(self._call_by_request.pop(request.id, (None, "")))
        if call is not None:
            call.open_requests -= 1

    def describe_requested_call(
        self, call: ToolCallState | None, request: ApprovalRequest | QuestionRequest
    ) -> JsonDict:
        """Return the call as a permission request contains it, with what it would do."""
        if call is None:  # it ended while the request was on its way
            return {"toolCallId": f"{self._turn_id}/{request.tool_call_id}", "status": "pending"}
        display = request.display if isinstance(request, ApprovalRequest) else ()
        shown = build_approval_content(
            display, self._work_dir, self._expected_changes.get(self._call_by_request.get(request.id, (None, "")))
        )
        if not shown and not call.leading_content and isinstance(request, ApprovalRequest):
            shown = [text_content(request.description)] if request.description else []
        asked = call.describe_for_request(shown, display)
        if call.is_placeholder:
            call.leading_content = list(
                asked.get("content", ())
            )  # repeated when the call ends: nothing else shows what it does
        return asked


def _build_meta(name: str, agent: CallingAgent) -> JsonDict:
    meta = {
        "toolName": name,
        "parentToolCallId": agent.call_id_prefix,
        "agentId": agent.id,
        "subagentType": agent.type,
    }
    return {key: value for key, value in meta.items() if value is not None}
