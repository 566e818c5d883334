"""Translate the events of a conversation to `session/update`s of the Agent Client Protocol, without I/O (acp spec 3).

Ids are derived from the record, so that a replay repeats the ids that the client saw: turns are counted by their
`TurnBegin` events, and the id of a call is that of the turn followed by the model's. The caller passes the time in;
`collect_due_updates` returns what must not be sent at once.
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
    join_text,
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
from kimi.domain.tools.tool import TodoBlock, TodoItem, tool_error
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.sessions import permissions, questions
from kimi.interfaces.acp.updates.prompt_content import render_user_input
from kimi.interfaces.acp.updates.result_content import JsonDict, file_uri, message_block, text_content
from kimi.interfaces.acp.updates.synthetic_calls import CompactionUpdates, McpLoading
from kimi.interfaces.acp.updates.tool_call_tracker import (
    INTERRUPTED_TEXT,
    MAIN_AGENT,
    CallingAgent,
    FindPresentation,
    ToolCallTracker,
)
from kimi.interfaces.acp.updates.usage import SessionUsage

MIN_SHOWN_RETRY_S: Final = 3.0
"""A shorter wait before another attempt is not shown, in seconds."""

_FREQUENT_TURN_EVENTS = (ev.StepBegin, ev.StatusUpdate, ev.TurnBegin, ev.TurnEnd)
_CONTENT_TYPES = (TextPart, ThinkPart, ImagePart, AudioPart, VideoPart)
_PLAN_STATUSES = {"pending": "pending", "in_progress": "in_progress", "done": "completed"}
_TURN_BEGIN_PATTERN = re.compile(rb'\s*\{\s*"type"\s*:\s*"TurnBegin"')


def count_turns(envelopes: Iterable[bytes]) -> int:
    """Count the recorded turns. The translator of a session that is opened without a replay continues from there."""
    return sum(_TURN_BEGIN_PATTERN.match(envelope) is not None for envelope in envelopes)


@dataclass(slots=True)
class _TurnIds:
    """The ids of the running turn, or of the last one."""

    number: int = 0
    step: int = 0
    attempt: int = 1
    is_open: bool = False
    extra_counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def id(self) -> str:
        """The id of the turn, unique in the session."""
        return f"t{self.number}"

    def message_id(self, kind: str) -> str:
        """Return the id of the message of this kind in this step."""
        again = f"r{self.attempt}" if self.attempt > 1 else ""
        return f"{self.id}-{self.step}{again}-{kind}"

    def next_extra_id(self, kind: str) -> str:
        """Return a new id for a message that belongs to no step."""
        self.extra_counts[kind] = number = self.extra_counts.get(kind, 0) + 1
        return f"{self.id}-{kind}-{number}"


def _default_mode_id(plan_mode: bool) -> str:
    return "plan" if plan_mode else "default"


class SessionUpdateTranslator:
    """Makes the updates of one session, in order. `recorded_turns` is how many turns its record already holds.

    The driver sends what `translate` returns for each event; what `collect_due_updates` returns once the time of
    `next_update_at` has come; and what `close_open_calls` returns when a turn was cut short. `mode_for_plan` returns
    the mode's id for plan mode on or off; `config_options` returns all options, sent when the mode changed without the
    client; `find_presentation` returns how calls of a tool look. With `is_replaying` the events come from a record.
    """

    def __init__(
        self,
        work_dir: str,
        *,
        capabilities: ClientCapabilities,
        recorded_turns: int = 0,
        is_replaying: bool = False,
        mode: str = "default",
        mode_for_plan: Callable[[bool], str] = _default_mode_id,
        config_options: Callable[[], Sequence[JsonObject]] | None = None,
        find_presentation: FindPresentation | None = None,
    ) -> None:
        self._capabilities = capabilities
        self._mode, self._mode_for_plan, self._config_options = mode, mode_for_plan, config_options
        self._turn = _TurnIds(recorded_turns)
        self._is_replaying = is_replaying
        self._last_prompt = ""
        self._turn_depth = 0
        self._has_steps = False
        self._held_notifications: list[ev.Notification] = []
        self._mcp_loading = McpLoading(is_silent=is_replaying)
        self._calls = ToolCallTracker(
            work_dir,
            find_presentation=find_presentation,
            find_display_name=self._mcp_loading.find_display_name,
        )
        self._calls.start_turn(self._turn.id)
        self._compactions = CompactionUpdates(with_updates=capabilities.compaction)
        self._usage = SessionUsage()

    # Calls of the driver

    def end_replay(self) -> None:
        """Continue with live events: waits are shown again, and the user's prompts are not sent."""
        self._is_replaying = False
        self._mcp_loading.is_silent = False

    def translate(self, event: ev.Event) -> list[JsonObject]:
        """Return the updates for `event`; for a request, those that must be sent before it."""
        if isinstance(event, ToolCallPart):
            self._calls.feed_arguments(event.arguments_part)
            return []
        # Any event but a further piece means that the arguments of the streaming call are complete. Internal events are
        # excepted: one call may begin to run while the next call of the message still streams.
        if self._calls.is_streaming and not isinstance(event, ev.INTERNAL_TYPES):
            return [*self._calls.finish_streaming(), *self._translate_event(event, MAIN_AGENT)]
        return list(self._translate_event(event, MAIN_AGENT))

    def next_update_at(self) -> float | None:
        """Return when to call `collect_due_updates`, on its clock; a past time means now, None that nothing waits."""
        times = [time for time in (self._calls.next_update_at, self._mcp_loading.next_update_at) if time is not None]
        return min(times, default=None)

    def collect_due_updates(self, now: float) -> list[JsonObject]:
        """Return the delayed updates that are due at `now`: titles of streaming calls, and waits for MCP servers.

        `now` is in seconds and must never decrease.
        """
        return [*self._calls.collect_due_updates(now), *self._mcp_loading.collect_due_updates(now, self._turn.id)]

    def show_terminal(self, call_id: str, terminal_id: str, agent_id: str | None = None) -> list[JsonObject]:
        """Show a terminal of the client in this call; the text of the result is not sent as content then."""
        call = self._calls.find_call(call_id, agent_id)
        if call is None:
            return []
        call.has_terminal = True
        return [*call.begin(), *call.add_content([{"type": "terminal", "terminalId": terminal_id}], [])]

    def close_open_calls(self, text: str = INTERRUPTED_TEXT, *, include_background: bool = False) -> list[JsonObject]:
        """Close what is open of the turn, inner calls first; with `include_background` also background agents."""
        return [
            *self._calls.fail_open_calls(text, include_background=include_background),
            *self._mcp_loading.cancel(),
            *self._compactions.cancel(),
        ]

    def turn_usage(self) -> JsonObject | None:
        """Return the tokens of the turn so far, for the answer to the prompt; None if no model reported any."""
        return self._usage.turn_usage()

    def repeat_usage_update(self) -> list[JsonObject]:
        """Return the last known context usage again, for a client that has just opened the session."""
        return list(self._usage.repeat_update())

    def update_mode(self, mode: str, *, is_known: bool = False) -> list[JsonObject]:
        """Record the mode; return no updates if it is the same, or if the client has set it itself (`is_known`)."""
        if mode == self._mode:
            return []
        self._mode = mode
        if is_known:
            return []
        found: list[JsonObject] = [{"sessionUpdate": "current_mode_update", "currentModeId": mode}]
        if self._config_options is not None:
            options = list(self._config_options())
            found.append({"sessionUpdate": "config_option_update", "configOptions": options})
        return found

    # Requests

    def build_permission(self, request: ApprovalRequest | QuestionRequest) -> JsonObject:
        """Return the params of `session/request_permission`, without the session, for an approval or a finished plan.

        `translate` must be called with the request before.
        """
        call = self._calls.find_requested_call(request)
        if isinstance(request, QuestionRequest):
            return questions.build_plan_permission(request, self._calls.describe_requested_call(call, request))
        return {"toolCall": self._calls.describe_requested_call(call, request), "options": permissions.APPROVAL_OPTIONS}

    def parse_permission_answer(self, request: Request, result: JsonObject | None) -> Answer:
        """Decode the client's answer. An unknown answer rejects, and so does None: an error, or no client any more."""
        match request:
            case ApprovalRequest():
                return permissions.parse_approval_answer(result)
            case QuestionRequest():
                self._calls.release_question(request)
                return questions.parse_plan_answer(request, result)
            case ToolCallRequest():
                return ToolCallAnswer(tool_error("The client runs no tools.", "External tool error"))
            case HookRequest():
                return HookAnswer()

    def select_question_form(self, request: QuestionRequest) -> str:
        """Return how to ask, and with it the method that builds the params.

        `plan` needs `build_permission`, `form` needs `build_elicitation`, `options` needs `build_question_permissions`.
        """
        call = self._calls.find_requested_call(request)
        if call is not None and call.tool == "ExitPlanMode":
            return "plan"
        return "form" if self._capabilities.elicitation_form else "options"

    def build_elicitation(self, request: QuestionRequest) -> JsonObject:
        """Return the params of `elicitation/create`, without the session."""
        call = self._calls.find_requested_call(request)
        return questions.build_form(request, call.id if call else None)

    def parse_elicitation_answer(self, request: QuestionRequest, result: JsonObject | None) -> QuestionAnswer:
        """Decode the answers in a form; there are none if it was declined or cancelled, or failed."""
        self._calls.release_question(request)
        return questions.parse_form_answer(request, result)

    def build_question_permissions(self, request: QuestionRequest) -> list[JsonObject]:
        """Return the params of one permission request per question, for a client without forms; send them in turn."""
        return list(
            questions.build_permission_params(
                request, self._calls.describe_requested_call(self._calls.find_requested_call(request), request)
            )
        )

    def parse_question_answer(self, request: QuestionRequest, results: Sequence[JsonObject | None]) -> QuestionAnswer:
        """Decode the answers to `build_question_permissions`; there are fewer if the driver stopped asking."""
        self._calls.release_question(request)
        return questions.parse_permission_answers(request, results)

    # Events

    def _translate_event(self, event: ev.Event, agent: CallingAgent) -> list[JsonDict]:
        if isinstance(event, _CONTENT_TYPES):
            return self._build_chunk(event) if agent is MAIN_AGENT else []
        if isinstance(event, _FREQUENT_TURN_EVENTS):
            return self._translate_turn_event(event) if agent is MAIN_AGENT else []
        match event:
            case ToolCall():
                return self._calls.announce(event, agent, is_recorded=self._is_replaying)
            case ev.FileChangePlanned():
                self._calls.set_expected_change((event.agent_id, event.tool_call_id), event.changed)
                return []
            case ev.ToolCallStarted():
                return self._calls.mark_started((event.agent_id, event.tool_call_id))
            case ev.ToolResult():
                return self._finish_call(event, agent)
            case ev.SubagentEvent():
                inner = self._calls.resolve_agent(event, agent)
                return self._translate_event(event.event, inner) if inner else []
            case ApprovalRequest() | QuestionRequest():
                return self._calls.add_request(event)
            case ev.ApprovalResponse():
                return self._calls.apply_approval(event)
            case ev.StepInterrupted():
                return self._calls.interrupt_step(agent, INTERRUPTED_TEXT)
            case ev.StepRetry():
                return self._translate_retry(event, agent)
            case _:
                return self._translate_turn_event(event) if agent is MAIN_AGENT else []

    def _translate_turn_event(self, event: ev.Event) -> list[JsonDict]:
        match event:
            case ev.TurnBegin():
                return self._begin_turn(event)
            case ev.TurnEnd():
                return self._end_turn()
            case ev.StepBegin():
                self._has_steps = True
                self._turn.step, self._turn.attempt = event.n, 1
                return []
            case ev.StatusUpdate():
                return self._translate_status(event)
            case ev.SteerInput() if self._is_replaying:
                return build_user_chunks(event.user_input, self._turn.next_extra_id("steer"))
            case ev.Notification():
                return self._translate_notification(event)
            case ev.PlanDisplay():
                return self._translate_plan(event)
            case ev.CompactionBegin():
                return self._compactions.begin(self._turn.id)
            case ev.CompactionEnd():
                return self._compactions.end()
            case ev.MCPLoadingBegin():
                self._mcp_loading.begin()
                return []
            case ev.MCPLoadingEnd():
                return self._mcp_loading.end(self._turn.id)
            case _:
                return []  # hooks and side questions are not shown; the client itself sent the steers

    def _begin_turn(self, event: ev.TurnBegin) -> list[JsonDict]:
        """Begin a turn; nested turns are counted too.

        A turn that had steps holds no nested turn, so a turn that begins after the steps follows a crash.
        """
        found: list[JsonDict] = []
        if self._turn_depth == 2 or self._has_steps:
            self._turn_depth = 0
        if self._turn_depth == 0:
            found += [dict(update) for update in self.close_open_calls()]
            self._usage.start_turn()
            self._calls.discard_turn_state()
        self._turn_depth += 1
        self._has_steps = False
        self._turn = _TurnIds(self._turn.number + 1, is_open=True)
        self._calls.start_turn(self._turn.id)
        if self._is_replaying and self._is_user_prompt(event):
            found += build_user_chunks(event.user_input, f"{self._turn.id}-user")
        held, self._held_notifications = self._held_notifications, []
        for notification in held:
            found += self._translate_notification(notification)
        return found + self._mcp_loading.report_failures(self._turn.id)

    def _is_user_prompt(self, event: ev.TurnBegin) -> bool:
        """Whether the user wrote this prompt. The turns of a flow and repetitions of a prompt are nested turns.

        After a turn that crashed without steps, the next turn looks nested, so the text is compared too.
        """
        text = join_text(event.user_input)
        if self._turn_depth > 1 and (
            self._last_prompt.startswith("/flow:") or (self._last_prompt and text.startswith(self._last_prompt))
        ):
            return False
        self._last_prompt = text
        return True

    def _end_turn(self) -> list[JsonDict]:
        self._turn_depth = max(self._turn_depth - 1, 0)
        self._has_steps = False
        self._turn.step = 0
        self._turn.is_open = self._turn_depth > 0
        return []

    def _finish_call(self, event: ev.ToolResult, agent: CallingAgent) -> list[JsonDict]:
        found = self._calls.finish(event, agent)
        if agent is MAIN_AGENT:
            found += [
                build_plan_update(block.items) for block in event.return_value.display if isinstance(block, TodoBlock)
            ]
        return found

    def _build_chunk(self, part: ContentPart) -> list[JsonDict]:
        block = message_block(part)
        if block is None:
            return []
        thinks = isinstance(part, ThinkPart)
        kind, message = ("agent_thought_chunk", "think") if thinks else ("agent_message_chunk", "text")
        return [{"sessionUpdate": kind, "messageId": self._turn.message_id(message), "content": block}]

    def _translate_retry(self, event: ev.StepRetry, agent: CallingAgent) -> list[JsonDict]:
        found = self._calls.interrupt_step(agent, "The attempt failed and is made again.")
        if agent is not MAIN_AGENT:
            return found
        self._turn.attempt = event.next_attempt
        if event.wait_s >= MIN_SHOWN_RETRY_S:
            why = f"HTTP {event.status_code}" if event.status_code else event.error_type
            text = f"Retrying ({event.next_attempt}/{event.max_attempts}) after {why}"
            found.append(_build_text_chunk("agent_thought_chunk", text, self._turn.message_id("retry")))
        return found

    def _translate_notification(self, event: ev.Notification) -> list[JsonDict]:
        if not self._turn.is_open:
            self._held_notifications.append(event)
            return []
        text = f"[Notification] {event.title}\n{event.body}"
        return [_build_text_chunk("agent_message_chunk", text, self._turn.next_extra_id("notification"))]

    def _translate_status(self, event: ev.StatusUpdate) -> list[JsonDict]:
        found = self._usage.record_status(event)
        if event.mcp_status is not None:
            self._mcp_loading.record_status(event.mcp_status)
            found += self._mcp_loading.report_failures(self._turn.id) if self._turn.is_open else []
        if event.plan_mode is not None:
            found += [dict(update) for update in self.update_mode(self._mode_for_plan(event.plan_mode))]
        return found

    def _translate_plan(self, event: ev.PlanDisplay) -> list[JsonDict]:
        found: list[JsonDict] = []
        call = self._calls.find_latest_call("ExitPlanMode")
        if call is not None:
            found += call.add_content([text_content(event.content)], [{"path": event.file_path}])
        if self._capabilities.plan:
            plan = {"type": "markdown", "planId": file_uri(event.file_path), "content": event.content}
            found.append({"sessionUpdate": "plan_update", "plan": plan})
        return found


def _build_text_chunk(kind: str, text: str, message_id: str) -> JsonDict:
    return {"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": text}}


def build_user_chunks(user_input: UserInput, message_id: str) -> list[JsonDict]:
    """Return the user's input as message chunks, one for each part."""
    chunk = {"sessionUpdate": "user_message_chunk", "messageId": message_id}
    return [chunk | {"content": block} for block in render_user_input(user_input)]


def build_plan_update(items: Sequence[TodoItem]) -> JsonDict:
    """Return the whole todo list as the client's plan; an empty list clears the plan."""
    entries = [{"content": item.title, "priority": "medium", "status": _PLAN_STATUSES[item.status]} for item in items]
    return {"sessionUpdate": "plan", "entries": entries}
