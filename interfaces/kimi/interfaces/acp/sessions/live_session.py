"""A live session: send its events as updates, pass its requests to the client, run its prompts as turns."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from kimi.application.control.approval_modes import mode_from_policy
from kimi.application.control.forget_turn import forget_since_checkpoint, next_checkpoint_id
from kimi.application.control.session_title import session_title
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import Delivery
from kimi.application.conversation.pending_requests import build_refusal
from kimi.application.ports import ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput, as_parts, missing_capabilities
from kimi.domain.errors import StoreFailed
from kimi.domain.events.event import INTERNAL_TYPES, REQUEST_TYPES, ApprovalResponse, Event, StatusUpdate
from kimi.domain.events.request import Answer, ApprovalRequest, QuestionRequest, Request
from kimi.domain.turn import TurnStatus
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.sessions.commands import list_available_commands
from kimi.interfaces.acp.sessions.options import build_config_options
from kimi.interfaces.acp.sessions.prompt_queue import QueuedPrompt
from kimi.interfaces.acp.transport.errors import log_internal_error, nothing_to_replay, unsupported_content
from kimi.interfaces.acp.transport.remote_client import RemoteClient
from kimi.interfaces.acp.updates.session_updates import SessionUpdateTranslator, count_turns
from kimi.interfaces.acp.updates.tool_presentation import ToolPresentation, present_tool

logger = logging.getLogger(__name__)

REPLAY_BATCH_SIZE: Final = 200
"""How many events of a replay are shown before other tasks may run."""

_STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal"}


class LiveSession:
    """Connects a conversation to the client with background tasks. `open_live_session` makes it and ends the tasks."""

    def __init__(
        self,
        conversation: Conversation,
        work_dir: str,
        client: RemoteClient,
        capabilities: ClientCapabilities,
        tasks: anyio.abc.TaskGroup,
        recorded_turns: int,
    ) -> None:
        self.conversation = conversation
        self._work_dir = work_dir
        self._client = client
        self._capabilities = capabilities
        self._tasks = tasks
        self.has_ended = False
        self._is_prepared = False
        self._request_scopes: dict[str, anyio.CancelScope] = {}
        self._send_lock = anyio.Lock(fast_acquire=True)
        self._replayed_count = 0  # how many events on the channel a replay has already shown
        self._sent_title = session_title(conversation)
        self._sent_choice = conversation.models.choice
        self._translator = self._build_translator(recorded_turns)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.conversation.id

    @property
    def is_idle(self) -> bool:
        """Whether it can be suspended without a loss: no turn, no pending request, no background task."""
        tasks = self.conversation.resources.background.tasks
        running = tasks is not None and any(task.is_active for task in tasks.list_tasks())
        return self.conversation.turn is None and not self._request_scopes and not running

    def prepare_first_turn(self) -> None:
        """Make what the first turn needs beside its prompt, unless a turn has made it: the tools, the tasks."""
        if not self._is_prepared and self.conversation.turn is None:
            self._is_prepared = True
            self.conversation.toolset.visible_specs()
            _ = self.conversation.resources.background.tasks

    # --- events to updates ----------------------------------------------------------------------------------------

    async def forward_events(self) -> None:
        """Send events as updates until the channel is closed."""
        # While the client does not read, the channel fills and the turn pauses. The lock is not held during that wait,
        # so that a replay or a terminal need not wait too.
        while batch := await self._receive_batch():
            await self._client.wait_for_capacity()
            async with self._send_lock:
                self._process_batch(batch)

    async def _receive_batch(self) -> Sequence[Delivery]:
        """Return the next events; send delayed updates when they are due in the meantime."""
        while True:
            due = self._translator.next_update_at()
            if due is None:
                return await self.conversation.events.channel.receive()
            with anyio.move_on_at(due):
                return await self.conversation.events.channel.receive()
            self._send_updates(self._translator.collect_due_updates(anyio.current_time()))

    def _process_batch(self, batch: Sequence[Delivery]) -> None:
        for event, _ in batch:
            was_replayed, self._replayed_count = self._replayed_count > 0, max(self._replayed_count - 1, 0)
            # Internal events are not recorded, so a replay has not shown them.
            if not was_replayed or isinstance(event, INTERNAL_TYPES):
                self._send_event(event)
            self._start_or_cancel_request(event)
        self._send_updates(self._translator.update_mode(mode_from_policy(self.conversation.policy)))
        self._send_options_if_changed()

    def _send_event(self, event: Event) -> None:
        try:
            self._send_updates(self._translator.translate(event))
        except Exception as error:  # one event that fails must not end the turn or the session
            log_internal_error(error)

    def _start_or_cancel_request(self, event: Event) -> None:
        if isinstance(event, REQUEST_TYPES):
            self._tasks.start_soon(self._answer_request, event)
        elif isinstance(event, ApprovalResponse) and (asked := self._request_scopes.get(event.request_id)):
            asked.cancel()  # it was resolved without the client

    def _send_updates(self, updates: Sequence[JsonObject]) -> None:
        for update in updates:
            self._client.send_update(self.id, update)

    async def show_terminal(self, call: ToolCallContext, terminal_id: str) -> None:
        """Show a terminal of the client in the call that it runs for.

        The call was announced before the client was asked for the terminal: `ClientWorkspace` waits for that.
        """
        async with self._send_lock:
            self._send_updates(self._translator.show_terminal(call.call_id, terminal_id, call.agent_id))

    def _build_translator(self, recorded_turns: int = 0, *, replaying: bool = False) -> SessionUpdateTranslator:
        conversation = self.conversation
        return SessionUpdateTranslator(
            self._work_dir,
            capabilities=self._capabilities,
            recorded_turns=recorded_turns,
            is_replaying=replaying,
            find_presentation=self._find_presentation,
            mode=mode_from_policy(conversation.policy),
            mode_for_plan=lambda plan: mode_from_policy(replace(conversation.policy, plan=plan)),
            config_options=lambda: build_config_options(conversation),
        )

    def _find_presentation(self, name: str) -> ToolPresentation | None:
        """Return how calls of a tool look; None for an unknown tool."""
        spec = self.conversation.toolset.find_spec(name)
        return None if spec is None else present_tool(spec)

    # --- updates that no event causes -----------------------------------------------------------------------------

    def send_commands(self) -> None:
        """Send the slash commands."""
        commands = list_available_commands(self.conversation)
        self._send_updates([{"sessionUpdate": "available_commands_update", "availableCommands": commands}])

    def send_state(self) -> None:
        """Send the context usage and the title to a client that has just opened the session."""
        conversation, model = self.conversation, self.conversation.model
        if model is not None:
            tokens = conversation.history.total_tokens
            self._translator.translate(StatusUpdate(context_tokens=tokens, max_context_tokens=model.context_size))
            self._send_updates(self._translator.repeat_usage_update())
        self._sent_title = None
        self._send_title_if_changed()

    def acknowledge_client_change(self) -> None:
        """Record that the client itself has changed mode or model, so that no update is sent for it."""
        self._translator.update_mode(mode_from_policy(self.conversation.policy), is_known=True)
        self._sent_choice = self.conversation.models.choice

    def send_options(self) -> None:
        """Send all config options."""
        options = build_config_options(self.conversation)
        self._send_updates([{"sessionUpdate": "config_option_update", "configOptions": options}])

    def _send_options_if_changed(self) -> None:
        if self.conversation.models.choice != self._sent_choice:
            self._sent_choice = self.conversation.models.choice
            self.send_options()

    def _send_title_if_changed(self) -> None:
        title = session_title(self.conversation)
        if title is None or title == self._sent_title:
            return
        self._sent_title = title
        now = datetime.fromtimestamp(self.conversation.resources.now(), UTC).isoformat(timespec="seconds")
        self._send_updates([{"sessionUpdate": "session_info_update", "title": title, "updatedAt": now}])

    def schedule_sync(self) -> None:
        """Sync the session to the disk, against power failures, without waiting for it. Does nothing after the end."""
        if not self.has_ended:  # the answer to a prompt may follow the end of its session
            self._tasks.start_soon(self.conversation.files.sync)

    # --- replay ---------------------------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Send the whole conversation again; new events are sent after it, so that none is lost or sent twice.

        A running turn continues with its new events. Raises RpcError if there is a conversation but none of its record
        can be read, StoreFailed if the record cannot be opened.
        """
        from kimi.interfaces.acp.updates.replay import build_replay_updates, decode_stored_events  # start-up time

        conversation = self.conversation
        async with self._send_lock:
            is_running = conversation.turn is not None
            # All that is recorded until now is replayed, whether it was sent already or waits in the channel. The
            # channel is counted without an await in between, so that exactly these events are skipped later.
            conversation.events.flush()
            self._replayed_count = conversation.events.channel.unfinished
            recorded = conversation.files.parsed_events()  # until now, however much a running turn adds meanwhile
            translator = self._build_translator(replaying=True)
            replay = build_replay_updates(decode_stored_events(recorded), translator, is_running=is_running)
            is_empty = True
            for number, updates in enumerate(replay):
                if updates:
                    is_empty = False
                    self._client.send_final_updates(self.id, updates)
                    await self._client.wait_for_capacity()  # for each: a single update may hold megabytes
                if number % REPLAY_BATCH_SIZE == 0:
                    await anyio.lowlevel.checkpoint()
            if is_empty and conversation.history.messages:
                raise nothing_to_replay()
            translator.end_replay()
            self._translator = translator

    # --- requests to the user -------------------------------------------------------------------------------------

    async def _answer_request(self, request: Request) -> None:
        from kimi.application.control.resolve_request import resolve_request  # start-up time

        with anyio.CancelScope() as self._request_scopes[request.id]:
            try:
                answer = await self._ask_client(request)
            except Exception as error:
                log_internal_error(error)
                answer = build_refusal(request)
            finally:
                del self._request_scopes[request.id]
            resolve_request(self.conversation, request.id, answer)

    async def _ask_client(self, request: Request) -> Answer:
        translator = self._translator
        if isinstance(request, ApprovalRequest):
            return translator.parse_permission_answer(
                request, await self._request_permission(translator.build_permission(request))
            )
        if not isinstance(request, QuestionRequest):
            return translator.parse_permission_answer(request, None)
        match translator.select_question_form(request):
            case "form":
                form = await self._call_client("elicitation/create", translator.build_elicitation(request))
                return translator.parse_elicitation_answer(request, form)
            case "options":
                results = [
                    await self._request_permission(params) for params in translator.build_question_permissions(request)
                ]
                return translator.parse_question_answer(request, results)
            case _:
                return translator.parse_permission_answer(
                    request, await self._request_permission(translator.build_permission(request))
                )

    async def _request_permission(self, params: JsonObject) -> JsonObject | None:
        return await self._call_client("session/request_permission", params)

    async def _call_client(self, method: str, params: JsonObject) -> JsonObject | None:
        """Return the client's result; None for an error answer, and if the client is gone."""
        try:
            return await self._client.call(method, {"sessionId": self.id, **params})
        except Exception as error:
            logger.info("%s was answered with an error: %s", method, error)
            return None

    def _cancel_stale_requests(self) -> None:
        """Cancel requests to the client that are no longer pending, because the turn was cancelled or failed."""
        for request_id, scope in self._request_scopes.items():
            if self.conversation.events.pending_requests.find(request_id) is None:
                scope.cancel()

    # --- prompts to turns -----------------------------------------------------------------------------------------

    async def run_prompt(self, queued_prompt: QueuedPrompt, user_input: UserInput) -> JsonObject:
        """Run a prompt and return the result of `session/prompt`, after all its updates have been queued.

        Raises RpcError, before anything is recorded, for content that the model does not accept; ModelNotSet without a
        model; else what `run_turn` raises.
        """
        from kimi.application.turn.run_turn import run_turn  # start-up time

        conversation = self.conversation
        self.check_content(user_input)
        mark = next_checkpoint_id(conversation)
        turn = conversation.turns.begin()
        queued_prompt.bind_turn(turn)
        try:
            status = await run_turn(conversation, turn, user_input)
            reason = (
                "cancelled" if queued_prompt.is_cancelled else self._resolve_stop_reason(status, mark)
            )  # also if the turn had finished before the cancel took effect
        except Exception:
            if not queued_prompt.is_cancelled:
                raise
            logger.exception("a cancelled turn failed")
            reason = "cancelled"
        finally:
            self._cancel_stale_requests()
            self._send_updates(self._translator.close_open_calls())
            self._send_title_if_changed()
        usage = self._translator.turn_usage()
        return {"stopReason": reason} if usage is None else {"stopReason": reason, "usage": usage}

    def check_content(self, user_input: UserInput) -> None:
        """Raise RpcError for content that the session's model does not accept, ModelNotSet without a model."""
        model = self.conversation.models.require_model()
        if missing := missing_capabilities(as_parts(user_input), model.capabilities):
            raise unsupported_content(missing)

    def _resolve_stop_reason(self, status: TurnStatus, mark: int) -> str:
        match status.status:
            case "cancelled":
                return "cancelled"
            case "max_steps_reached":
                return "max_turn_requests"
            case _:
                reason = _STOP_REASONS.get(status.stop_reason or "", "end_turn")
                if reason == "refusal" and not self._forget_turn(mark):
                    return "end_turn"  # the prompt stays in the context, and `refusal` means that it does not
                return reason

    def _forget_turn(self, mark: int) -> bool:
        try:
            return forget_since_checkpoint(self.conversation, mark)
        except StoreFailed:
            logger.exception("a refused prompt stays in the context")
            return False


@asynccontextmanager
async def open_live_session(
    conversation: Conversation, work_dir: str, client: RemoteClient, capabilities: ClientCapabilities
) -> AsyncGenerator[LiveSession, None]:
    """Connect a conversation to the client while the context is open; on exit refuse its pending requests."""
    turns = 0
    if conversation.files.is_resumed:
        turns = await anyio.to_thread.run_sync(count_turns, conversation.files.events())
    async with anyio.create_task_group() as tasks:
        live = LiveSession(conversation, work_dir, client, capabilities, tasks, turns)
        tasks.start_soon(live.forward_events)
        try:
            yield live
        finally:
            # Pending requests are refused first, so that nothing waits for answers that can no longer arrive.
            conversation.events.pending_requests.close()
            conversation.events.channel.close()
            live.has_ended = True
            tasks.cancel_scope.cancel()
