"""Events of a conversation to `session/update`s of the Agent Client Protocol, pure (acp spec 3).

Ids are made from what is recorded, so that a replay has those that the client saw: turns are counted by their
`TurnBegin`s, calls carry the model's id behind that of the turn. The clock is handed in: what may not be sent at once
is given by `due`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kimi.domain.content.message import JsonObject, ToolCall, ToolCallPart
from kimi.domain.content.parts import (
    AudioPart,
    ContentPart,
    ImagePart,
    TextPart,
    ThinkPart,
    UserInput,
    VideoPart,
    joined_text,
)
from kimi.domain.events import event as ev
from kimi.domain.events.request import (
    Answer,
    ApprovalRequest,
    HookAnswer,
    HookRequest,
    QuestionAnswer,
    QuestionRequest,
    Request,
    ToolCallAnswer,
    ToolCallRequest,
)
from kimi.domain.tools.diff import ChangedText
from kimi.domain.tools.tool import TodoBlock, TodoItem, tool_error
from kimi.interfaces.acp.client_capabilities import ClientAbilities
from kimi.interfaces.acp.sessions import permissions, questions
from kimi.interfaces.acp.updates.content import shown_input
from kimi.interfaces.acp.updates.result_content import Json, chunk_block, file_uri, text_content
from kimi.interfaces.acp.updates.synthetic_calls import Compactions, McpLoading
from kimi.interfaces.acp.updates.tool_call_tracker import INTERRUPTED, MAIN, Agent, CallBook, FaceOf
from kimi.interfaces.acp.updates.usage import Usage

SHOWN_RETRY_S: Final = 3.0
"""A shorter wait before another attempt is not worth a word."""

_CONTENT = (TextPart, ThinkPart, ImagePart, AudioPart, VideoPart)
_PLAN_STATUS = {"pending": "pending", "in_progress": "in_progress", "done": "completed"}
_TURN_BEGIN = re.compile(rb'\s*\{\s*"type"\s*:\s*"TurnBegin"')


def count_turns(envelopes: Iterable[bytes]) -> int:
    """How many turns are recorded: where `Translator` goes on with a session that is opened without a replay."""
    return sum(_TURN_BEGIN.match(envelope) is not None for envelope in envelopes)


@dataclass(slots=True)
class _Turn:
    """The turn that runs, or the last one."""

    number: int = 0
    step: int = 0
    attempt: int = 1
    is_open: bool = False
    extra_ids: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def id(self) -> str:
        """Unique in the session."""
        return f"t{self.number}"

    def message(self, kind: str) -> str:
        """The id of the message of this kind in this step."""
        again = f"r{self.attempt}" if self.attempt > 1 else ""
        return f"{self.id}-{self.step}{again}-{kind}"

    def extra(self, kind: str) -> str:
        """An id for something that stands alone."""
        self.extra_ids[kind] = number = self.extra_ids.get(kind, 0) + 1
        return f"{self.id}-{kind}-{number}"


def _plan_or_default(plan_mode: bool) -> str:
    return "plan" if plan_mode else "default"


class Translator:
    """The updates of one session, in order. `turns` is how many turns its record already holds.

    The driver sends what `updates` gives for each event, then `due(now)` when `next_due()` has passed; on the end of a
    turn that was cut short `settle()`. `mode_of` gives the mode's id from plan mode on or off, `config_options` the
    complete options for a change that was not the client's; `face_of` the look of tools that are not
    built in. With `is_watched` somebody calls `started`. With `replaying` the events come from a record.
    """

    def __init__(
        self,
        work_dir: str,
        *,
        client: ClientAbilities,
        turns: int = 0,
        replaying: bool = False,
        mode: str = "default",
        mode_of: Callable[[bool], str] = _plan_or_default,
        config_options: Callable[[], Sequence[JsonObject]] | None = None,
        is_watched: bool = False,
        face_of: FaceOf | None = None,
    ) -> None:
        self._client = client
        self._mode, self._mode_of, self._config_options = mode, mode_of, config_options
        self._turn = _Turn(turns)
        self._replaying = replaying
        self._prompt = ""
        self._depth = 0
        self._has_steps = False
        self._waiting: list[ev.Notification] = []
        self._mcp = McpLoading(silent=replaying)
        self._calls = CallBook(work_dir, face_of=face_of, name_of=self._mcp.shown, is_watched=is_watched)
        self._calls.new_turn(self._turn.id)
        self._compactions = Compactions(with_updates=client.compaction)
        self._usage = Usage()

    # What the driver asks for

    def go_live(self) -> None:
        """The replay is over: what comes now happens now."""
        self._replaying = False
        self._mcp.silent = False

    def updates(self, event: ev.Event) -> list[JsonObject]:
        """The updates for `event`; for a request those that go before it."""
        if isinstance(event, ToolCallPart):
            self._calls.take(event.arguments_part)
            return []
        if self._calls.grows:
            return [*self._calls.close_growing(), *self._translated(event, MAIN)]
        return list(self._translated(event, MAIN))

    def next_due(self) -> float | None:
        """When `due` has something to give, on its clock; a time in the past means now, None that nothing waits."""
        times = [time for time in (self._calls.next_due, self._mcp.due_at) if time is not None]
        return min(times, default=None)

    def due(self, now: float) -> list[JsonObject]:
        """What had to wait: titles of calls that stream, calls that have begun. `now` is in seconds and never falls."""
        return [*self._calls.due(now), *self._mcp.due(now, self._turn.id)]

    def will_change(self, agent_id: str | None, call_id: str, changed: ChangedText) -> None:
        """The call would change this file: its diff can show the whole text. See `CallWatch` of the ports."""
        self._calls.will_change((agent_id, call_id), changed)

    def started(self, call_id: str, agent_id: str | None = None) -> list[JsonObject]:
        """The tool of this call really begins to run. May come before the call itself; it is then remembered."""
        return list(self._calls.started((agent_id, call_id)))

    def terminal(self, call_id: str, terminal_id: str, agent_id: str | None = None) -> list[JsonObject]:
        """A terminal of the client shows what this call does; its text is not sent as content then."""
        call = self._calls.find(call_id, agent_id)
        if call is None:
            return []
        call.has_terminal = True
        return [*call.begin(), *call.show([{"type": "terminal", "terminalId": terminal_id}], [])]

    def settle(self, text: str = INTERRUPTED, *, everything: bool = False) -> list[JsonObject]:
        """Close what is open of the turn, inner calls first; `everything` means agents in the background too."""
        return [*self._calls.settle(text, everything=everything), *self._mcp.settle(), *self._compactions.settle()]

    def usage(self) -> JsonObject | None:
        """The tokens of the turn so far, for the answer to the prompt; None when no model told any."""
        return self._usage.of_turn()

    def window_update(self) -> list[JsonObject]:
        """The last known use of the context, once more: for a client that has just opened the session."""
        return list(self._usage.update_again())

    def mode_update(self, mode: str, *, told: bool = False) -> list[JsonObject]:
        """The mode is `mode` now; nothing to send when the client knows, or has set it itself (`told`)."""
        if mode == self._mode:
            return []
        self._mode = mode
        if told:
            return []
        found: list[JsonObject] = [{"sessionUpdate": "current_mode_update", "currentModeId": mode}]
        if self._config_options is not None:
            options = list(self._config_options())
            found.append({"sessionUpdate": "config_option_update", "configOptions": options})
        return found

    # Requests

    def permission(self, request: ApprovalRequest | QuestionRequest) -> JsonObject:
        """The params of `session/request_permission` without the session, for an approval or the plan of ExitPlanMode.

        `updates` was given the request before.
        """
        call = self._calls.called(request)
        if isinstance(request, QuestionRequest):
            return questions.plan_permission(request, self._calls.asked_call(call, request))
        return {"toolCall": self._calls.asked_call(call, request), "options": permissions.APPROVAL_OPTIONS}

    def permission_answer(self, request: Request, result: JsonObject | None) -> Answer:
        """What the client's answer means; None (an error, a client that is gone) and the unknown reject."""
        match request:
            case ApprovalRequest():
                return permissions.approval_answer(result)
            case QuestionRequest():
                self._calls.released(request)
                return questions.plan_answer(request, result)
            case ToolCallRequest():
                return ToolCallAnswer(tool_error("The client runs no tools.", "External tool error"))
            case HookRequest():
                return HookAnswer()

    def asks_by(self, request: QuestionRequest) -> str:
        """How to ask: `plan` (`permission`), `form` (`elicitation`) or `options` (`question_permissions`)."""
        call = self._calls.called(request)
        if call is not None and call.tool == "ExitPlanMode":
            return "plan"
        return "form" if self._client.elicitation_form else "options"

    def elicitation(self, request: QuestionRequest) -> JsonObject:
        """The params of `elicitation/create` without the session."""
        call = self._calls.called(request)
        return questions.form(request, call.id if call else None)

    def elicitation_answer(self, request: QuestionRequest, result: JsonObject | None) -> QuestionAnswer:
        """The answers in a form; none when it was declined, cancelled or failed."""
        self._calls.released(request)
        return questions.form_answer(request, result)

    def question_permissions(self, request: QuestionRequest) -> list[JsonObject]:
        """For a client without forms: the params of one permission request for each question, to be asked in turn."""
        return list(questions.permission_params(request, self._calls.asked_call(self._calls.called(request), request)))

    def question_answer(self, request: QuestionRequest, results: Sequence[JsonObject | None]) -> QuestionAnswer:
        """The answers to `question_permissions`; fewer results when the driver stopped asking."""
        self._calls.released(request)
        return questions.permission_answers(request, results)

    # Events

    def _translated(self, event: ev.Event, agent: Agent) -> list[Json]:
        if isinstance(event, _CONTENT):
            return self._chunk(event) if agent is MAIN else []
        match event:
            case ToolCall():
                return self._calls.announced(event, agent)
            case ev.ToolResult():
                return self._finished(event, agent)
            case ev.SubagentEvent():
                inner = self._calls.agent(event, agent)
                return self._translated(event.event, inner) if inner else []
            case ApprovalRequest() | QuestionRequest():
                return self._calls.request(event)
            case ev.ApprovalResponse():
                return self._calls.response(event)
            case ev.StepInterrupted():
                return self._calls.interrupted(agent, INTERRUPTED)
            case ev.StepRetry():
                return self._retried(event, agent)
            case _:
                return self._of_turn(event) if agent is MAIN else []

    def _of_turn(self, event: ev.Event) -> list[Json]:
        match event:
            case ev.TurnBegin():
                return self._turn_begins(event)
            case ev.TurnEnd():
                return self._turn_ends()
            case ev.StepBegin():
                self._has_steps = True
                self._turn.step, self._turn.attempt = event.n, 1
                return []
            case ev.StatusUpdate():
                return self._status(event)
            case ev.SteerInput() if self._replaying:
                return user_chunks(event.user_input, self._turn.extra("steer"))
            case ev.Notification():
                return self._notification(event)
            case ev.PlanDisplay():
                return self._plan(event)
            case ev.CompactionBegin():
                return self._compactions.begin(self._turn.id)
            case ev.CompactionEnd():
                return self._compactions.end()
            case ev.MCPLoadingBegin():
                self._mcp.begin()
                return []
            case ev.MCPLoadingEnd():
                return self._mcp.end(self._turn.id)
            case _:
                return []  # hooks and side questions are not shown; steers came from this client

    def _turn_begins(self, event: ev.TurnBegin) -> list[Json]:
        """Counted whether nested or not. A turn with steps holds no other: what begins after them follows a crash."""
        found: list[Json] = []
        if self._depth == 2 or self._has_steps:
            self._depth = 0
        if self._depth == 0:
            found += [dict(update) for update in self.settle()]
            self._usage.new_turn()
            self._calls.forget()
        self._depth += 1
        self._has_steps = False
        self._turn = _Turn(self._turn.number + 1, is_open=True)
        self._calls.new_turn(self._turn.id)
        if self._replaying and self._was_typed(event):
            found += user_chunks(event.user_input, f"{self._turn.id}-user")
        waiting, self._waiting = self._waiting, []
        for notification in waiting:
            found += self._notification(notification)
        return found + self._mcp.untold(self._turn.id)

    def _was_typed(self, event: ev.TurnBegin) -> bool:
        """Did a person write this? The turns of a flow and the repetitions of a prompt lie inside of another turn.

        A turn that a crash left without steps looks as if the next one lay inside of it, so the text counts too.
        """
        text = joined_text(event.user_input)
        if self._depth > 1 and (self._prompt.startswith("/flow:") or (self._prompt and text.startswith(self._prompt))):
            return False
        self._prompt = text
        return True

    def _turn_ends(self) -> list[Json]:
        self._depth = max(self._depth - 1, 0)
        self._has_steps = False
        self._turn.step = 0
        self._turn.is_open = self._depth > 0
        return []

    def _finished(self, event: ev.ToolResult, agent: Agent) -> list[Json]:
        found = self._calls.finished(event, agent)
        if agent is MAIN:
            found += [plan_update(block.items) for block in event.return_value.display if isinstance(block, TodoBlock)]
        return found

    def _chunk(self, part: ContentPart) -> list[Json]:
        block = chunk_block(part)
        if block is None:
            return []
        thinks = isinstance(part, ThinkPart)
        kind, message = ("agent_thought_chunk", "think") if thinks else ("agent_message_chunk", "text")
        return [{"sessionUpdate": kind, "messageId": self._turn.message(message), "content": block}]

    def _retried(self, event: ev.StepRetry, agent: Agent) -> list[Json]:
        found = self._calls.interrupted(agent, "The attempt failed and is made again.")
        if agent is not MAIN:
            return found
        self._turn.attempt = event.next_attempt
        if event.wait_s >= SHOWN_RETRY_S:
            why = f"HTTP {event.status_code}" if event.status_code else event.error_type
            text = f"Retrying ({event.next_attempt}/{event.max_attempts}) after {why}"
            found.append(_said("agent_thought_chunk", text, self._turn.message("retry")))
        return found

    def _notification(self, event: ev.Notification) -> list[Json]:
        if not self._turn.is_open:
            self._waiting.append(event)
            return []
        text = f"[Notification] {event.title}\n{event.body}"
        return [_said("agent_message_chunk", text, self._turn.extra("notification"))]

    def _status(self, event: ev.StatusUpdate) -> list[Json]:
        found = self._usage.learn(event)
        if event.mcp_status is not None:
            self._mcp.learn(event.mcp_status)
            found += self._mcp.untold(self._turn.id) if self._turn.is_open else []
        if event.plan_mode is not None:
            found += [dict(update) for update in self.mode_update(self._mode_of(event.plan_mode))]
        return found

    def _plan(self, event: ev.PlanDisplay) -> list[Json]:
        found: list[Json] = []
        call = self._calls.latest("ExitPlanMode")
        if call is not None:
            found += call.show([text_content(event.content)], [{"path": event.file_path}])
        if self._client.plan:
            plan = {"type": "markdown", "planId": file_uri(event.file_path), "content": event.content}
            found.append({"sessionUpdate": "plan_update", "plan": plan})
        return found


def _said(kind: str, text: str, message_id: str) -> Json:
    return {"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": text}}


def user_chunks(given: UserInput, message_id: str) -> list[Json]:
    """What a person wrote, a chunk for each part."""
    chunk = {"sessionUpdate": "user_message_chunk", "messageId": message_id}
    return [chunk | {"content": block} for block in shown_input(given)]


def plan_update(items: Sequence[TodoItem]) -> Json:
    """The todo list as the client's plan, whole; empty clears it."""
    entries = [{"content": item.title, "priority": "medium", "status": _PLAN_STATUS[item.status]} for item in items]
    return {"sessionUpdate": "plan", "entries": entries}
