"""What is live of a session: events to updates, requests to the person and their answers, prompts to turns."""

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
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import Delivery
from kimi.application.conversation.pending_requests import build_refusal
from kimi.application.ports import ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput, as_parts, missing_capabilities
from kimi.domain.errors import ModelNotSet, StoreFailed
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
"""How many updates of a replay are sent before others get their turn."""

ANNOUNCE_TIMEOUT_S: Final = 1.0
"""How long the announcement of a call may take before its terminal is shown all the same."""

_STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal"}


class LiveSession:
    """A conversation with the tasks that speak for it. Made by `open_live_session`, which ends them."""

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
        self._request_scopes: dict[str, anyio.CancelScope] = {}
        self._send_lock = anyio.Lock()
        self._replayed_count = 0  # events on the channel that a replay has shown already
        self._sent_title = conversation.files.state.custom_title
        self._sent_choice = conversation.models.choice
        self._translator = self._build_translator(recorded_turns)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.conversation.id

    @property
    def is_idle(self) -> bool:
        """Could it be suspended without a loss: no turn, nothing asked, no task in the background?"""
        tasks = self.conversation.resources.background.tasks
        running = tasks is not None and any(task.is_active for task in tasks.list_tasks())
        return self.conversation.turn is None and not self._request_scopes and not running

    # --- events to updates ----------------------------------------------------------------------------------------

    async def forward_events(self) -> None:
        """Send what happens, until the channel is closed."""
        while batch := await self._receive_batch():
            await self._client.wait_for_capacity()
            async with self._send_lock:
                self._process_batch(batch)

    async def _receive_batch(self) -> Sequence[Delivery]:
        """The next events; what was put off is sent meanwhile, when it is due."""
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
            if not was_replayed or isinstance(event, INTERNAL_TYPES):  # a replay cannot show what is not recorded
                self._send_event(event)
            self._start_or_cancel_request(event)
        self._send_updates(self._translator.update_mode(mode_from_policy(self.conversation.policy)))
        self._send_options_if_changed()

    def _send_event(self, event: Event) -> None:
        try:
            self._send_updates(self._translator.translate(event))
        except Exception as error:  # the turn goes on, and so does the session
            log_internal_error(error)

    def _start_or_cancel_request(self, event: Event) -> None:
        if isinstance(event, REQUEST_TYPES):
            self._tasks.start_soon(self._answer_request, event)
        elif isinstance(event, ApprovalResponse) and (asked := self._request_scopes.get(event.request_id)):
            asked.cancel()  # it was settled without the client

    def _send_updates(self, updates: Sequence[JsonObject]) -> None:
        for update in updates:
            self._client.send_update(self.id, update)

    async def show_terminal(self, call: ToolCallContext, terminal_id: str) -> None:
        """Show a terminal of the client in the call that it runs for, after what was announced of it before."""
        with anyio.move_on_after(ANNOUNCE_TIMEOUT_S):
            await self.conversation.events.channel.join()
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
        """How calls of a tool look."""
        spec = self.conversation.toolset.find_spec(name)
        return None if spec is None else present_tool(spec)

    # --- what a client is told beside events ----------------------------------------------------------------------

    def send_commands(self) -> None:
        """Send the slash commands."""
        commands = list_available_commands(self.conversation)
        self._send_updates([{"sessionUpdate": "available_commands_update", "availableCommands": commands}])

    def send_state(self) -> None:
        """Send how full the context is and what the session is called, to a client that has just opened it."""
        conversation, model = self.conversation, self.conversation.model
        if model is not None:
            tokens = conversation.history.total_tokens
            self._translator.translate(StatusUpdate(context_tokens=tokens, max_context_tokens=model.context_size))
            self._send_updates(self._translator.repeat_usage_update())
        self._sent_title = None
        self._send_title_if_changed()

    def acknowledge_client_change(self) -> None:
        """The client has changed mode or model itself: it need not be told."""
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
        title = self.conversation.files.state.custom_title
        if title is None or title == self._sent_title:
            return
        self._sent_title = title
        now = datetime.fromtimestamp(self.conversation.resources.now(), UTC).isoformat(timespec="seconds")
        self._send_updates([{"sessionUpdate": "session_info_update", "title": title, "updatedAt": now}])

    def schedule_sync(self) -> None:
        """Bring the session to the disk, for a power failure; nobody waits for it."""
        self._tasks.start_soon(self.conversation.files.sync)

    # --- replay ---------------------------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Send the whole conversation again. What happens meanwhile is sent after it: nothing twice, nothing lost.

        A turn that is running goes on with what is new of it. Raises Refused: there is a conversation, and nothing of
        it can be read; StoreFailed: its record cannot be opened.
        """
        from kimi.interfaces.acp.updates.replay import build_replay_updates, decode_stored_events  # start-up time

        conversation = self.conversation
        async with self._send_lock:
            is_running = conversation.turn is not None
            # What was recorded until this moment is replayed, whether it was sent already or waits in the channel.
            conversation.events.flush()
            self._replayed_count = conversation.events.channel.unfinished
            envelopes = list(conversation.files.events()) if is_running else conversation.files.events()
            translator = self._build_translator(replaying=True)
            updates = build_replay_updates(decode_stored_events(envelopes), translator, is_running=is_running)
            sent = 0
            for sent, update in enumerate(updates, start=1):
                self._client.send_update(self.id, update)
                if sent % REPLAY_BATCH_SIZE == 0:
                    await self._client.wait_for_capacity()
                    await anyio.lowlevel.checkpoint()
            if not sent and conversation.history.messages:
                raise nothing_to_replay()
            translator.end_replay()
            self._translator = translator

    # --- requests to the person -----------------------------------------------------------------------------------

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
        """The client's result; None for an error answer, and when the client is gone."""
        try:
            return await self._client.call(method, {"sessionId": self.id, **params})
        except Exception as error:
            logger.info("%s was answered with an error: %s", method, error)
            return None

    def _cancel_stale_requests(self) -> None:
        """Take back what nobody waits for any more: the turn was cancelled, or failed."""
        for request_id, scope in self._request_scopes.items():
            if self.conversation.events.pending_requests.find(request_id) is None:
                scope.cancel()

    # --- prompts to turns -----------------------------------------------------------------------------------------

    async def run_prompt(self, queued_prompt: QueuedPrompt, user_input: UserInput) -> JsonObject:
        """Run a prompt; gives the result of `session/prompt`. Its updates are all out by then.

        Raises Refused for content that the model cannot take, before anything is recorded; else as `run_turn`.
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
            )  # even if it got through
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
        """Raises Refused for content that the model of the session cannot take, ModelNotSet without a model."""
        model = self.conversation.model
        if model is None:
            raise ModelNotSet
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
                    return "end_turn"  # it stays in the context, and `refusal` would say that it does not
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
    """Speak for a conversation while the context is open; on leaving whatever is open is refused and let go."""
    turns = 0
    if conversation.files.is_resumed:
        turns = await anyio.to_thread.run_sync(count_turns, conversation.files.events())
    async with anyio.create_task_group() as tasks:
        live = LiveSession(conversation, work_dir, client, capabilities, tasks, turns)
        tasks.start_soon(live.forward_events)
        try:
            yield live
        finally:
            conversation.events.pending_requests.close()
            conversation.events.channel.close()
            tasks.cancel_scope.cancel()
