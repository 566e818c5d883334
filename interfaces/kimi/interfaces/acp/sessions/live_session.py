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

from kimi.application.control.forget_turn import forget_since, next_mark
from kimi.application.control.modes import mode_of
from kimi.application.control.resolve_request import resolve_request
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.event_channel import Delivery
from kimi.application.conversation.pending_requests import refusal
from kimi.application.ports import ToolCallContext
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput, as_parts, missing_capabilities
from kimi.domain.errors import ModelNotSet, StoreFailed
from kimi.domain.events.event import REQUEST_TYPES, ApprovalResponse, Event, StatusUpdate
from kimi.domain.events.request import Answer, ApprovalRequest, QuestionRequest, Request
from kimi.domain.tools.diff import ChangedText
from kimi.domain.turn import TurnStatus
from kimi.interfaces.acp.client_capabilities import ClientAbilities
from kimi.interfaces.acp.sessions.commands import available_commands
from kimi.interfaces.acp.sessions.options import config_options
from kimi.interfaces.acp.sessions.prompt_queue import Ticket
from kimi.interfaces.acp.transport.client import ClientSide
from kimi.interfaces.acp.transport.errors import bug, nothing_to_replay, unsupported_content
from kimi.interfaces.acp.updates.replay import replay_updates, stored_events
from kimi.interfaces.acp.updates.tool_presentation import Face
from kimi.interfaces.acp.updates.translate import Translator, count_turns

logger = logging.getLogger(__name__)

REPLAY_BATCH: Final = 200
"""How many updates of a replay are sent before others get their turn."""

SHOW_S: Final = 1.0
"""How long the announcement of a call may take before its terminal is shown all the same."""

_STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal"}


class LiveSession:
    """A conversation with the tasks that speak for it. Made by `serve_session`, which ends them."""

    def __init__(
        self,
        conversation: Conversation,
        work_dir: str,
        client: ClientSide,
        abilities: ClientAbilities,
        tasks: anyio.abc.TaskGroup,
        turns: int,
    ) -> None:
        self.conversation = conversation
        self._work_dir = work_dir
        self._client = client
        self._abilities = abilities
        self._tasks = tasks
        self._asks: dict[str, anyio.CancelScope] = {}
        self._gate = anyio.Lock()
        self._replayed = 0  # events on the channel that a replay has shown already
        self._told_title = conversation.files.state.custom_title
        self._told_choice = conversation.choice
        self._translator = self._new_translator(turns)
        conversation.call_watch = self

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.conversation.id

    @property
    def is_idle(self) -> bool:
        """Could it be suspended without a loss: no turn, nothing asked, no task in the background?"""
        tasks = self.conversation.background.tasks
        running = tasks is not None and any(task.active for task in tasks.tasks())
        return self.conversation.turn is None and not self._asks and not running

    # --- events to updates ----------------------------------------------------------------------------------------

    async def pump(self) -> None:
        """Send what happens, until the channel is closed."""
        while batch := await self._next_batch():
            await self._client.room()
            async with self._gate:
                self._deal_with(batch)

    async def _next_batch(self) -> Sequence[Delivery]:
        """The next events; what was put off is sent meanwhile, when it is due."""
        while True:
            due = self._translator.next_due()
            if due is None:
                return await self.conversation.channel.receive()
            with anyio.move_on_at(due):
                return await self.conversation.channel.receive()
            self._send(self._translator.due(anyio.current_time()))

    def _deal_with(self, batch: Sequence[Delivery]) -> None:
        for event, _ in batch:
            if self._replayed:
                self._replayed -= 1
            else:
                self._send_event(event)
            self._ask_or_settle(event)
        self._send(self._translator.mode_update(mode_of(self.conversation.policy)))
        self._tell_choice()

    def _send_event(self, event: Event) -> None:
        try:
            self._send(self._translator.updates(event))
        except Exception as error:  # the turn goes on, and so does the session
            bug(error)

    def _ask_or_settle(self, event: Event) -> None:
        if isinstance(event, REQUEST_TYPES):
            self._tasks.start_soon(self._ask, event)
        elif isinstance(event, ApprovalResponse) and (asked := self._asks.get(event.request_id)):
            asked.cancel()  # it was settled without the client

    def will_change(self, agent_id: str | None, call_id: str, changed: ChangedText) -> None:
        """See `CallWatch` of the ports."""
        self._translator.will_change(agent_id, call_id, changed)

    def begins(self, agent_id: str | None, call_id: str) -> None:
        """See `CallWatch` of the ports."""
        self._send(self._translator.started(call_id, agent_id))

    def _send(self, updates: Sequence[JsonObject]) -> None:
        for update in updates:
            self._client.update(self.id, update)

    async def show_terminal(self, call: ToolCallContext, terminal_id: str) -> None:
        """Show a terminal of the client in the call that it runs for, after what was announced of it before."""
        with anyio.move_on_after(SHOW_S):
            await self.conversation.channel.drained()
        async with self._gate:
            self._send(self._translator.terminal(call.call_id, terminal_id, call.agent_id))

    def _new_translator(self, turns: int = 0, *, replaying: bool = False) -> Translator:
        conversation = self.conversation
        return Translator(
            self._work_dir,
            client=self._abilities,
            turns=turns,
            replaying=replaying,
            is_watched=True,
            face_of=self._face_of,
            mode=mode_of(conversation.policy),
            mode_of=lambda plan: mode_of(replace(conversation.policy, plan=plan)),
            config_options=lambda: config_options(conversation),
        )

    def _face_of(self, name: str) -> Face | None:
        """The look of a tool that is not built in."""
        tool = self.conversation.toolset.find(name)
        return None if tool is None else Face(tool.spec.kind, tool.spec.key_argument)

    # --- what a client is told beside events ----------------------------------------------------------------------

    def tell_commands(self) -> None:
        """Send the slash commands."""
        commands = available_commands(self.conversation)
        self._send([{"sessionUpdate": "available_commands_update", "availableCommands": commands}])

    def tell_state(self) -> None:
        """Send how full the context is and what the session is called, to a client that has just opened it."""
        conversation, model = self.conversation, self.conversation.model
        if model is not None:
            tokens = conversation.history.total
            self._translator.updates(StatusUpdate(context_tokens=tokens, max_context_tokens=model.context_size))
            self._send(self._translator.window_update())
        self._told_title = None
        self._tell_title()

    def set_told(self) -> None:
        """The client has changed mode or model itself: it need not be told."""
        self._translator.mode_update(mode_of(self.conversation.policy), told=True)
        self._told_choice = self.conversation.choice

    def tell_options(self) -> None:
        """Send all config options."""
        options = config_options(self.conversation)
        self._send([{"sessionUpdate": "config_option_update", "configOptions": options}])

    def _tell_choice(self) -> None:
        if self.conversation.choice != self._told_choice:
            self._told_choice = self.conversation.choice
            self.tell_options()

    def _tell_title(self) -> None:
        title = self.conversation.files.state.custom_title
        if title is None or title == self._told_title:
            return
        self._told_title = title
        now = datetime.fromtimestamp(self.conversation.now(), UTC).isoformat(timespec="seconds")
        self._send([{"sessionUpdate": "session_info_update", "title": title, "updatedAt": now}])

    def save(self) -> None:
        """Bring the session to the disk, for a power failure; nobody waits for it."""
        self._tasks.start_soon(self.conversation.files.sync)

    # --- replay ---------------------------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Send the whole conversation again. What happens meanwhile is sent after it: nothing twice, nothing lost.

        A turn that is running goes on with what is new of it. Raises Refused: there is a conversation, and nothing of
        it can be read; StoreFailed: its record cannot be opened.
        """
        conversation = self.conversation
        async with self._gate:
            is_running = conversation.turn is not None
            # What was recorded until this moment is replayed, whether it was sent already or waits in the channel.
            conversation.flush()
            self._replayed = conversation.channel.unfinished
            envelopes = list(conversation.files.events()) if is_running else conversation.files.events()
            translator = self._new_translator(replaying=True)
            updates = replay_updates(stored_events(envelopes), translator, is_running=is_running)
            sent = 0
            for sent, update in enumerate(updates, start=1):
                self._client.update(self.id, update)
                if sent % REPLAY_BATCH == 0:
                    await self._client.room()
                    await anyio.lowlevel.checkpoint()
            if not sent and conversation.history.messages:
                raise nothing_to_replay()
            translator.go_live()
            self._translator = translator

    # --- requests to the person -----------------------------------------------------------------------------------

    async def _ask(self, request: Request) -> None:
        with anyio.CancelScope() as self._asks[request.id]:
            try:
                answer = await self._answer(request)
            except Exception as error:
                bug(error)
                answer = refusal(request)
            finally:
                del self._asks[request.id]
            resolve_request(self.conversation, request.id, answer)

    async def _answer(self, request: Request) -> Answer:
        translator = self._translator
        if isinstance(request, ApprovalRequest):
            return translator.permission_answer(request, await self._choice(translator.permission(request)))
        if not isinstance(request, QuestionRequest):
            return translator.permission_answer(request, None)
        match translator.asks_by(request):
            case "form":
                form = await self._call("elicitation/create", translator.elicitation(request))
                return translator.elicitation_answer(request, form)
            case "options":
                results = [await self._choice(params) for params in translator.question_permissions(request)]
                return translator.question_answer(request, results)
            case _:
                return translator.permission_answer(request, await self._choice(translator.permission(request)))

    async def _choice(self, params: JsonObject) -> JsonObject | None:
        return await self._call("session/request_permission", params)

    async def _call(self, method: str, params: JsonObject) -> JsonObject | None:
        """The client's result; None for an error answer, and when the client is gone."""
        try:
            return await self._client.call(method, {"sessionId": self.id, **params})
        except Exception as error:
            logger.info("%s was answered with an error: %s", method, error)
            return None

    def _drop_stale_asks(self) -> None:
        """Take back what nobody waits for any more: the turn was cancelled, or failed."""
        for request_id, scope in self._asks.items():
            if self.conversation.waiting.find(request_id) is None:
                scope.cancel()

    # --- prompts to turns -----------------------------------------------------------------------------------------

    async def run(self, ticket: Ticket, user_input: UserInput) -> JsonObject:
        """Run a prompt; gives the result of `session/prompt`. Its updates are all out by then.

        Raises Refused for content that the model cannot take, before anything is recorded; else as `run_turn`.
        """
        from kimi.application.turn.run_turn import run_turn  # start-up time

        conversation = self.conversation
        self.check_content(user_input)
        mark = next_mark(conversation)
        turn = conversation.begin_turn()
        ticket.runs(turn)
        try:
            status = await run_turn(conversation, turn, user_input)
            reason = "cancelled" if ticket.cancelled else self._stop_reason(status, mark)  # even if it got through
        except Exception:
            if not ticket.cancelled:
                raise
            logger.exception("a cancelled turn failed")
            reason = "cancelled"
        finally:
            self._drop_stale_asks()
            self._send(self._translator.settle())
            self._tell_title()
        usage = self._translator.usage()
        return {"stopReason": reason} if usage is None else {"stopReason": reason, "usage": usage}

    def check_content(self, user_input: UserInput) -> None:
        """Raises Refused for content that the model of the session cannot take, ModelNotSet without a model."""
        model = self.conversation.model
        if model is None:
            raise ModelNotSet
        if missing := missing_capabilities(as_parts(user_input), model.capabilities):
            raise unsupported_content(missing)

    def _stop_reason(self, status: TurnStatus, mark: int) -> str:
        match status.status:
            case "cancelled":
                return "cancelled"
            case "max_steps_reached":
                return "max_turn_requests"
            case _:
                reason = _STOP_REASONS.get(status.stop_reason or "", "end_turn")
                if reason == "refusal" and not self._forget(mark):
                    return "end_turn"  # it stays in the context, and `refusal` would say that it does not
                return reason

    def _forget(self, mark: int) -> bool:
        try:
            return forget_since(self.conversation, mark)
        except StoreFailed:
            logger.exception("a refused prompt stays in the context")
            return False


@asynccontextmanager
async def serve_session(
    conversation: Conversation, work_dir: str, client: ClientSide, abilities: ClientAbilities
) -> AsyncGenerator[LiveSession, None]:
    """Speak for a conversation while the context is open; on leaving whatever is open is refused and let go."""
    turns = 0
    if conversation.files.resumed:
        turns = await anyio.to_thread.run_sync(count_turns, conversation.files.events())
    async with anyio.create_task_group() as tasks:
        live = LiveSession(conversation, work_dir, client, abilities, tasks, turns)
        tasks.start_soon(live.pump)
        try:
            yield live
        finally:
            conversation.waiting.close()
            conversation.channel.close()
            tasks.cancel_scope.cancel()
