"""The tool calls of a session that are not finished, with the calls inside of calls and the questions about them."""

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
"""How calls of a tool look; None for an unknown one."""


@dataclass(frozen=True, slots=True)
class CallingAgent:
    """Who speaks: the main agent, or a subagent inside of a call. `prefix` begins the ids of its calls."""

    id: str | None = None
    call_id_prefix: str | None = None
    parent_call: CallKey | None = None
    type: str | None = None


MAIN_AGENT: Final = CallingAgent()


class ToolCallTracker:
    """All open calls. `find_display_name` returns what a tool is called in titles."""

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
        """When `due` has something to give."""
        times = (call.next_update_at for call in self._open_calls.values())
        return min((time for time in times if time is not None), default=None)

    def collect_due_updates(self, now: float) -> list[JsonDict]:
        """What had to wait: titles of calls that stream."""
        found: list[JsonDict] = []
        for call in self._open_calls.values():
            if call.next_update_at is not None and call.next_update_at <= now:
                found += call.collect_due_updates(now)
        return found

    # The life of a call

    def start_turn(self, turn_id: str) -> None:
        """Calls from now on belong to this turn."""
        self._turn_id = turn_id

    def discard_turn_state(self) -> None:
        """Drop what only a turn that is over needed."""
        self._client_ids = {key: whole for key, whole in self._client_ids.items() if key in self._background_parents}

    def find_call(self, call_id: str, agent_id: str | None = None) -> ToolCallState | None:
        """An open call."""
        return self._open_calls.get((agent_id, call_id))

    def find_latest_call(self, tool: str) -> ToolCallState | None:
        """The last open call of the main agent to this tool."""
        found = [call for (agent, _), call in self._open_calls.items() if agent is None and call.tool == tool]
        return found[-1] if found else None

    def feed_arguments(self, piece: str | None) -> None:
        """A piece of the arguments of the call that streams."""
        if self._streaming_call is not None:
            self._streaming_call.feed_arguments(piece)

    def finish_streaming(self) -> list[JsonDict]:
        """The call that streams has all its arguments."""
        call, self._streaming_call = self._streaming_call, None
        return [] if call is None else call.complete_arguments()

    @property
    def is_streaming(self) -> bool:
        """Does a call stream?"""
        return self._streaming_call is not None

    def set_expected_change(self, key: CallKey, changed: ChangedText) -> None:
        """The call would change this file; kept until it ends."""
        self._expected_changes[key] = changed

    def mark_started(self, key: CallKey) -> list[JsonDict]:
        """The tool of this call begins. Calls of agents in the background are not shown, so they are unknown here."""
        call = self._open_calls.get(key)
        return [] if call is None else call.begin()

    def fail_open_calls(self, text: str, *, include_background: bool = False) -> list[JsonDict]:
        """Close all calls, those inside of others first. Those of agents in the background go on, unless told."""
        self._streaming_call = None
        self._expected_changes.clear()
        found: list[JsonDict] = []
        for key in reversed(list(self._open_calls)):
            if include_background or not self._is_detached(key):
                found += self._fail_call(key, text)
        return found

    def _is_detached(self, key: CallKey) -> bool:
        """Does the call outlive the one that its agent was started by?"""
        while (call := self._open_calls.get(key)) is not None:
            if call.parent_call is None:
                return call.is_placeholder
            key = call.parent_call
        return True

    def announce(self, event: ToolCall, agent: CallingAgent) -> list[JsonDict]:
        """The model begins a call."""
        name, key = event.function.name, (agent.id, event.id)
        found = self._fail_call(key, INTERRUPTED_TEXT)  # another one of this id that never ended
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
        found.append(call.announce(event.function.arguments))
        if agent is MAIN_AGENT:
            self._streaming_call = call
            return found
        return found + call.complete_arguments()

    def _make_client_id(self, call_id: str, agent: CallingAgent) -> str:
        """The id in the client; a model that repeats its ids within a turn gets a number behind them."""
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
        """A call has its result: what runs inside of it ends too, unless it goes on in the background."""
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
        """The step of this agent is over: so are its calls, and what runs inside of them."""
        found: list[JsonDict] = []
        for key in [key for key in self._open_calls if key[0] == agent.id]:
            found += self._fail_children(key, text) + self._fail_call(key, text)
        return found

    def resolve_agent(self, event: SubagentEvent, parent: CallingAgent) -> CallingAgent | None:
        """Who speaks in `event`; None when it does not say inside of which call."""
        if event.parent_tool_call_id is None:
            return None
        key = (parent.id, event.parent_tool_call_id)
        prefix = self._client_ids.get(key) or f"{parent.call_id_prefix or self._turn_id}/{event.parent_tool_call_id}"
        return CallingAgent(event.agent_id or event.parent_tool_call_id, prefix, key, event.subagent_type)

    # Questions about calls

    def add_request(self, request: ApprovalRequest | QuestionRequest) -> list[JsonDict]:
        """A call waits for an answer."""
        key = self._find_call_key(request)
        found: list[JsonDict] = []
        if key not in self._open_calls:
            found += self._announce_placeholder(request, key)
        self._call_by_request[request.id] = key
        return found + self._open_calls[key].add_request(may_run=isinstance(request, ApprovalRequest))

    def _find_call_key(self, request: ApprovalRequest | QuestionRequest) -> CallKey:
        """The call that a request is about; a question does not say which agent asks."""
        agent_id = request.agent_id if isinstance(request, ApprovalRequest) else None
        key = (agent_id, request.tool_call_id)
        if key in self._open_calls:
            return key
        return next((other for other in reversed(self._open_calls) if other[1] == request.tool_call_id), key)

    def _announce_placeholder(self, request: ApprovalRequest | QuestionRequest, key: CallKey) -> list[JsonDict]:
        """Announce a call that nobody announced: clients know no request without one."""
        tool = request.sender if isinstance(request, ApprovalRequest) else "AskUserQuestion"
        kind = request.subagent_type if isinstance(request, ApprovalRequest) else None
        prefix = f"{self._turn_id}/{key[0]}" if key[0] else None  # a replay shows none of them, and counts none
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
        """An approval was answered, by whomever."""
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
        """The call that waits for this answer; None when it has ended."""
        return self._open_calls.get(self._call_by_request.get(request.id, (None, "")))

    def release_question(self, request: QuestionRequest) -> None:
        """A question was answered: its call waits no more."""
        call = self._open_calls.get(self._call_by_request.pop(request.id, (None, "")))
        if call is not None:
            call.open_requests -= 1

    def describe_requested_call(
        self, call: ToolCallState | None, request: ApprovalRequest | QuestionRequest
    ) -> JsonDict:
        """The call as a request to the client names it, with what it would do."""
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
            )  # what its end repeats: nothing else shows what it does
        return asked


def _build_meta(name: str, agent: CallingAgent) -> JsonDict:
    meta = {
        "toolName": name,
        "parentToolCallId": agent.call_id_prefix,
        "agentId": agent.id,
        "subagentType": agent.type,
    }
    return {key: value for key, value in meta.items() if value is not None}
