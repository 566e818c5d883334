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
from kimi.interfaces.acp.updates.result_content import Json, asked_content, text_content
from kimi.interfaces.acp.updates.tool_calls import GRACE_S, CallKey, CallState
from kimi.interfaces.acp.updates.tool_presentation import FACES, UNKNOWN_TOOL, Face, shortened

INTERRUPTED: Final = "Interrupted."
_IN_BACKGROUND: Final = "Approved. It runs in the background."
_REFUSED: Final = "It was not approved."

FaceOf = Callable[[str], "Face | None"]
"""The look of a tool that is not built in; None for an unknown one."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who speaks: the main agent, or a subagent inside of a call. `prefix` begins the ids of its calls."""

    id: str | None = None
    prefix: str | None = None
    parent: CallKey | None = None
    type: str | None = None


MAIN: Final = Agent()


class CallBook:
    """All open calls. `name_of` gives how a tool is called that is not built in.

    With `is_watched` somebody calls `started`; else a call that nobody is asked about counts as begun after a while.
    """

    def __init__(
        self, work_dir: str, *, face_of: FaceOf | None, name_of: Callable[[str], str], is_watched: bool
    ) -> None:
        self._work_dir = work_dir
        self._face_of, self._name_of = face_of, name_of
        self._is_watched = is_watched
        self._changes: dict[CallKey, ChangedText] = {}
        self._calls: dict[CallKey, CallState] = {}
        self._growing: CallState | None = None
        self._ids: dict[CallKey, str] = {}
        self._hosts: set[CallKey] = set()
        """Calls whose agents may outlive them."""
        self._used: set[str] = set()
        self._asked: dict[str, CallKey] = {}
        self._started: set[CallKey] = set()
        self._turn_id = ""

    # Time

    @property
    def next_due(self) -> float | None:
        """When `due` has something to give."""
        times = [call.due_at for call in self._calls.values()]
        times += [call.begins_at for call in self._calls.values() if not call.asks]
        return min((time for time in times if time is not None), default=None)

    def due(self, now: float) -> list[Json]:
        """What had to wait: titles of calls that stream, calls that have begun."""
        found: list[Json] = []
        for call in list(self._calls.values()):
            if call.due_at is not None and call.due_at <= now:
                found += call.due(now)
            if call.begins_at is None or call.asks:
                continue
            if call.begins_at == 0.0:
                call.begins_at = now + GRACE_S
            elif call.begins_at <= now:
                found += call.begin()
        return found

    # The life of a call

    def new_turn(self, turn_id: str) -> None:
        """Calls from now on belong to this turn."""
        self._turn_id = turn_id

    def forget(self) -> None:
        """Drop what only a turn that is over needed."""
        self._started.clear()
        self._ids = {key: whole for key, whole in self._ids.items() if key in self._hosts}

    def find(self, call_id: str, agent_id: str | None = None) -> CallState | None:
        """An open call."""
        return self._calls.get((agent_id, call_id))

    def latest(self, tool: str) -> CallState | None:
        """The last open call of the main agent to this tool."""
        found = [call for (agent, _), call in self._calls.items() if agent is None and call.tool == tool]
        return found[-1] if found else None

    def take(self, piece: str | None) -> None:
        """A piece of the arguments of the call that streams."""
        if self._growing is not None:
            self._growing.take(piece)

    def close_growing(self) -> list[Json]:
        """The call that streams has all its arguments."""
        grown, self._growing = self._growing, None
        return [] if grown is None else self._completed(grown)

    @property
    def grows(self) -> bool:
        """Does a call stream?"""
        return self._growing is not None

    def will_change(self, key: CallKey, changed: ChangedText) -> None:
        """The call would change this file; kept until it ends."""
        self._changes[key] = changed

    def started(self, key: CallKey) -> list[Json]:
        """The tool of this call begins; remembered when the call itself is still on its way."""
        call = self._calls.get(key)
        if call is None or not call.is_complete:
            self._started.add(key)
            return []
        return call.begin()

    def settle(self, text: str, *, everything: bool = False) -> list[Json]:
        """Close all calls, those inside of others first. Those of agents in the background go on, unless told."""
        self._growing = None
        self._started.clear()
        self._changes.clear()
        found: list[Json] = []
        for key in reversed(list(self._calls)):
            if everything or not self._is_detached(key):
                found += self._fail(key, text)
        return found

    def _is_detached(self, key: CallKey) -> bool:
        """Does the call outlive the one that its agent was started by?"""
        while (call := self._calls.get(key)) is not None:
            if call.parent is None:
                return call.stands_in
            key = call.parent
        return True

    def announced(self, event: ToolCall, agent: Agent) -> list[Json]:
        """The model begins a call."""
        name, key = event.function.name, (agent.id, event.id)
        found = self._fail(key, INTERRUPTED)  # another one of this id that never ended
        call = CallState(
            self._new_id(event.id, agent),
            name,
            self._face(name),
            self._work_dir,
            shown_as=self._shown_name(name, agent),
            meta=_meta(name, agent),
        )
        self._calls[key], self._ids[key] = call, call.id
        call.parent = agent.parent
        found.append(call.announce(event.function.arguments))
        if agent is MAIN:
            self._growing = call
            return found
        return found + self._completed(call)

    def _new_id(self, call_id: str, agent: Agent) -> str:
        """The id in the client; a model that repeats its ids within a turn gets a number behind them."""
        whole = f"{agent.prefix or self._turn_id}/{call_id}"
        count, found = 1, whole
        while found in self._used:
            count += 1
            found = f"{whole}#{count}"
        self._used.add(found)
        return found

    def _face(self, name: str) -> Face:
        face = FACES.get(name) or (self._face_of(name) if self._face_of else None)
        return face or UNKNOWN_TOOL

    def _shown_name(self, name: str, agent: Agent) -> str:
        shown = name if name in FACES else self._name_of(name)
        return f"{shortened(agent.type, 20)} › {shown}" if agent.type else shown

    def _completed(self, call: CallState) -> list[Json]:
        found = call.complete()
        key = next((key for key, other in self._calls.items() if other is call), None)
        if key is None:
            return found
        if key in self._started:
            self._started.discard(key)
            return found + call.begin()
        call.begins_at = None if self._is_watched else 0.0
        return found

    def finished(self, event: ToolResult, agent: Agent) -> list[Json]:
        """A call has its result: what runs inside of it ends too, unless it goes on in the background."""
        key = (agent.id, event.tool_call_id)
        goes_on = any(isinstance(block, BackgroundTaskBlock) for block in event.return_value.display)
        found = [] if goes_on else self._close_children(key, INTERRUPTED)
        if goes_on:
            self._hosts.add(key)
        call, changed = self._calls.pop(key, None), self._changes.pop(key, None)
        if call is not None:
            found += call.finish(event.return_value, changed)
        return found

    def _close_children(self, parent: CallKey, text: str) -> list[Json]:
        found: list[Json] = []
        for key in [key for key, call in self._calls.items() if call.parent == parent]:
            found += self._close_children(key, text) + self._fail(key, text)
        return found

    def _fail(self, key: CallKey, text: str) -> list[Json]:
        call = self._calls.pop(key, None)
        return [] if call is None else call.fail(text)

    def interrupted(self, agent: Agent, text: str) -> list[Json]:
        """The step of this agent is over: so are its calls, and what runs inside of them."""
        found: list[Json] = []
        for key in [key for key in self._calls if key[0] == agent.id]:
            found += self._close_children(key, text) + self._fail(key, text)
        return found

    def agent(self, event: SubagentEvent, parent: Agent) -> Agent | None:
        """Who speaks in `event`; None when it does not say inside of which call."""
        if event.parent_tool_call_id is None:
            return None
        key = (parent.id, event.parent_tool_call_id)
        prefix = self._ids.get(key) or f"{parent.prefix or self._turn_id}/{event.parent_tool_call_id}"
        return Agent(event.agent_id or event.parent_tool_call_id, prefix, key, event.subagent_type)

    # Questions about calls

    def request(self, request: ApprovalRequest | QuestionRequest) -> list[Json]:
        """A call waits for an answer."""
        key = self._key_of(request)
        found: list[Json] = []
        if key not in self._calls:
            found += self._stand_in(request, key)
        self._asked[request.id] = key
        return found + self._calls[key].hold(may_run=isinstance(request, ApprovalRequest))

    def _key_of(self, request: ApprovalRequest | QuestionRequest) -> CallKey:
        """The call that a request is about; a question does not say which agent asks."""
        agent_id = request.agent_id if isinstance(request, ApprovalRequest) else None
        key = (agent_id, request.tool_call_id)
        if key in self._calls:
            return key
        return next((other for other in reversed(self._calls) if other[1] == request.tool_call_id), key)

    def _stand_in(self, request: ApprovalRequest | QuestionRequest, key: CallKey) -> list[Json]:
        """Announce a call that nobody announced: clients know no request without one."""
        tool = request.sender if isinstance(request, ApprovalRequest) else "AskUserQuestion"
        kind = request.subagent_type if isinstance(request, ApprovalRequest) else None
        prefix = f"{self._turn_id}/{key[0]}" if key[0] else None  # a replay shows none of them, and counts none
        agent = Agent(key[0], prefix, type=kind)
        name = self._shown_name(tool, agent)
        call = CallState(
            self._new_id(key[1], agent), tool, self._face(tool), self._work_dir, shown_as=name, meta={"toolName": tool}
        )
        call.stands_in = isinstance(request, ApprovalRequest) and request.source_kind == "background_agent"
        self._calls[key], self._ids[key] = call, call.id
        return [call.announce(None), *call.complete()]

    def response(self, event: ApprovalResponse) -> list[Json]:
        """An approval was answered, by whomever."""
        key = self._asked.pop(event.request_id, (None, ""))
        call = self._calls.get(key)
        if call is None:
            return []
        call.asks -= 1
        if call.stands_in:
            del self._calls[key]
            return call.fail(_REFUSED) if event.response == "reject" else call.let_go(_IN_BACKGROUND)
        if event.response != "reject":
            return call.begin()
        call.is_refused = True
        return []

    def called(self, request: ApprovalRequest | QuestionRequest) -> CallState | None:
        """The call that waits for this answer; None when it has ended."""
        return self._calls.get(self._asked.get(request.id, (None, "")))

    def released(self, request: QuestionRequest) -> None:
        """A question was answered: its call waits no more."""
        call = self._calls.get(self._asked.pop(request.id, (None, "")))
        if call is not None:
            call.asks -= 1

    def asked_call(self, call: CallState | None, request: ApprovalRequest | QuestionRequest) -> Json:
        """The call as a request to the client names it, with what it would do."""
        if call is None:  # it ended while the request was on its way
            return {"toolCallId": f"{self._turn_id}/{request.tool_call_id}", "status": "pending"}
        display = request.display if isinstance(request, ApprovalRequest) else ()
        shown = asked_content(display, self._work_dir, self._changes.get(self._asked.get(request.id, (None, ""))))
        if not shown and not call.content and isinstance(request, ApprovalRequest):
            shown = [text_content(request.description)] if request.description else []
        asked = call.asked(shown, display)
        if call.stands_in:
            call.content = list(asked.get("content", ()))  # what its end repeats: nothing else shows what it does
        return asked


def _meta(name: str, agent: Agent) -> Json:
    meta = {
        "toolName": name,
        "parentToolCallId": agent.prefix,
        "agentId": agent.id,
        "subagentType": agent.type,
    }
    return {key: value for key, value in meta.items() if value is not None}
