"""Use-case run-turn: run one prompt from TurnBegin to TurnEnd (runtime spec 5.1, wire spec 7)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from random import random as uniform

import anyio
import anyio.lowlevel
import anyio.to_thread

from kimi.application.commands.registry import find_command, takes_commands
from kimi.application.control.steer import append_late_steers
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import RunningTurn
from kimi.application.conversation.skill_registry import FLOW_PREFIX, SKILL_PREFIX
from kimi.application.hooks.hook_points import close_late_hooks, run_prompt_hooks, run_stop_failure_hooks
from kimi.application.ports import Random
from kimi.application.step.checkpoints import next_checkpoint_records
from kimi.application.step.notifications import notify_client, watch_background_tasks
from kimi.application.step.run_steps import run_steps
from kimi.application.turn.stop_hooks import run_stop_hooks
from kimi.domain.command import Command, parse_command
from kimi.domain.content.message import Message
from kimi.domain.content.parts import ContentPart, TextPart, UserInput, as_parts, join_text, missing_capabilities
from kimi.domain.errors import CapabilityMissing, StoreFailed
from kimi.domain.events.event import StepInterrupted, ToolResult, TurnBegin, TurnEnd
from kimi.domain.history.history import find_unanswered_calls
from kimi.domain.history.session import SessionState, shorten_title
from kimi.domain.tools.repeat_guard import RepeatGuard
from kimi.domain.tools.tool import CANCELLED, ToolReturnValue, tool_message
from kimi.domain.turn import TurnStatus

logger = logging.getLogger(__name__)


async def run_turn(
    conversation: Conversation, turn: RunningTurn, user_input: UserInput, *, random: Random = uniform
) -> TurnStatus:
    """Run `turn`, which `conversation.turns.begin` returned, on this input.

    When this returns or raises, TurnEnd was emitted and the driver has handled it.

    Cancelling `turn.scope` ends the turn with status `cancelled`: every pending request is resolved, and every
    announced call gets a result, in the events and in the history.

    Raises ModelError (no usable model, capability missing, provider failed), StoreFailed (the disk failed).
    """
    conversation.models.usage.begin_turn()
    try:
        # Shielded, as is the end: clients expect both events also from a turn that is cancelled before it starts.
        with anyio.CancelScope(shield=True):
            await conversation.events.emit(TurnBegin(user_input))
        status = TurnStatus("cancelled")
        failed = True
        try:
            with turn.scope, watch_background_tasks(conversation):
                status = await _run_with_hooks(conversation, turn, user_input, random)
            failed = turn.is_cancelled = turn.scope.cancelled_caught
        except anyio.get_cancelled_exc_class():
            turn.is_cancelled = True  # a subagent's turn, cancelled with the call that it is part of
            raise
        finally:
            # After the poll for notifications has been cancelled, so that it emits nothing behind TurnEnd.
            with anyio.CancelScope(shield=True):
                await _finish_turn(conversation, turn, failed)
                await conversation.events.join()
        return status
    finally:
        conversation.turns.end()  # last: the next turn must not begin before the driver has handled TurnEnd


async def _run_with_hooks(
    conversation: Conversation, turn: RunningTurn, user_input: UserInput, random: Random
) -> TurnStatus:
    """Run the turn between its hooks, which may block the prompt or make the turn continue."""
    await conversation.session.mark_last()
    await anyio.lowlevel.checkpoint()  # a turn that was cancelled before it began stores nothing of its prompt
    try:
        if (reason := await run_prompt_hooks(conversation, user_input)) is not None:
            await conversation.events.emit(TextPart(reason))
            return TurnStatus("finished")
        status = await _dispatch(conversation, turn, user_input, random)
        return await run_stop_hooks(conversation, turn, status, conversation.model, random)
    except Exception as error:
        await run_stop_failure_hooks(conversation, error)
        raise


async def _dispatch(conversation: Conversation, turn: RunningTurn, user_input: UserInput, random: Random) -> TurnStatus:
    command = parse_command(join_text(user_input)) if takes_commands(conversation) else None
    if command is None or conversation.subagent is not None:  # a prompt that a model wrote is never a command
        return await _run_prompt(conversation, turn, user_input, random)
    run = find_command(conversation, command.name)
    if run is None:
        media = tuple(part for part in as_parts(user_input) if not isinstance(part, TextPart))
        return await _run_skill_command(conversation, turn, command, media, random)
    turn.accepts_steers = False
    return await run(conversation, command.arguments) or TurnStatus("finished")


async def _run_prompt(
    conversation: Conversation, turn: RunningTurn, user_input: UserInput, random: Random
) -> TurnStatus:
    """Answer the prompt, and repeat it where iterations are configured (runtime spec 5.6)."""
    title = shorten_title(join_text(user_input))
    iterations = conversation.turns.limits.ralph_iterations
    if iterations == 0 or conversation.subagent is not None:
        return await _answer_input(conversation, turn, user_input, random, title)
    from kimi.application.turn.run_flow import run_ralph  # start-up time

    run_nested_turn = partial(_run_nested_turn, conversation, turn, random=random, title=title)
    return await run_ralph(conversation, turn, user_input, iterations, run_nested_turn)


async def _run_skill_command(
    conversation: Conversation, turn: RunningTurn, command: Command, media: tuple[ContentPart, ...], random: Random
) -> TurnStatus:
    """Run `/skill:<name>` or `/flow:<name>`, the commands that skill files define (runtime spec 7.3, 7.4).

    `media`, the parts of the prompt that are not text, are sent to the model after the text of the skill.
    """
    skills = conversation.resources.skills
    if (skill := skills.find(SKILL_PREFIX, command.name)) is not None:
        message = await anyio.to_thread.run_sync(skills.build_message, skill, command.arguments)
        if message is not None:
            return await _answer_input(conversation, turn, (TextPart(message), *media), random)
        text = f'Failed to load skill "/{command.name}".'
    elif (skill := skills.find(FLOW_PREFIX, command.name)) is not None and skill.flow is not None:
        if not command.arguments:
            from kimi.application.turn.run_flow import run_flow  # start-up time

            return await run_flow(
                conversation, turn, skill.flow, partial(_run_nested_turn, conversation, turn, random=random)
            )
        logger.warning("/%s does nothing: a flow takes no arguments", command.name)
        return TurnStatus("finished")
    elif skill is not None and skill.flow_error is not None:
        text = f'The flow "/{command.name}" cannot be run. {skill.flow_error}'
    else:
        text = f'Unknown slash command "/{command.name}".'
    turn.accepts_steers = False
    await conversation.events.emit(TextPart(text))
    return TurnStatus("finished")


async def _run_nested_turn(
    conversation: Conversation, turn: RunningTurn, user_input: UserInput, *, random: Random, title: str = ""
) -> TurnStatus:
    """Run a complete turn inside `turn`, which stays open and accepts steers between nested turns as well."""
    turn.has_rejected_call = False
    with anyio.CancelScope(shield=True):  # for each TurnBegin there is a TurnEnd, as in `run_turn`
        await conversation.events.emit(TurnBegin(user_input))
    failed = True
    try:
        status = await _answer_input(conversation, turn, user_input, random, title)
        turn.accepts_steers, failed = True, False
        return status
    except anyio.get_cancelled_exc_class():
        turn.is_cancelled = True
        raise
    finally:
        with anyio.CancelScope(shield=True):
            await _emit_turn_end(conversation, turn, failed)


async def _answer_input(
    conversation: Conversation, turn: RunningTurn, user_input: UserInput, random: Random, title: str = ""
) -> TurnStatus:
    """Append the input to the history and run steps to answer it. `title` names a session that has no title."""
    model = conversation.models.require_model()
    parts = as_parts(user_input)
    if missing := missing_capabilities(parts, model.capabilities):
        raise CapabilityMissing(model.name, missing)
    conversation.context.ensure_system_prompt()
    turn.repeat_guard = RepeatGuard()  # calls that the user asks for again do not count as repeated by the model
    conversation.context.append(*next_checkpoint_records(conversation), Message("user", parts))
    await _save_title_and_modes(conversation, user_input, title)
    if conversation.toolset.servers is not None:
        from kimi.application.control.mcp_servers import wait_for_servers  # start-up time

        await wait_for_servers(conversation)
    return await run_steps(conversation, turn, model, random)


async def _save_title_and_modes(conversation: Conversation, prompt: UserInput, title: str) -> None:
    """Store the title of the first real prompt and the active modes, in one write; a model may write a better title."""
    if conversation.subagent is not None:
        return

    def name_session(old: SessionState) -> SessionState:
        return replace(old, custom_title=title) if title and old.custom_title is None else old

    is_named = not title or conversation.files.state.custom_title is not None
    await conversation.permissions.save_active_modes(name_session)
    if not is_named and conversation.models.title_model is not None:
        from kimi.application.control.session_title import start_writing_title  # start-up time

        start_writing_title(conversation, prompt, title)


@dataclass(slots=True)
class _UsageStoring:
    """Whether a task stores what the session has used, and whether that has changed since the task read it."""

    is_running: bool = False
    is_outdated: bool = False


def _start_storing_usage(conversation: Conversation) -> None:
    """Store what the session has used so far, beside the end of the turn, which does not wait for it.

    One task at a time: a disk that is slower than the turns is not given a write for each.
    """
    used, group = conversation.models.usage.figures, conversation.resources.hooks.task_group
    if conversation.subagent is not None or group is None or not used.turn.tokens.total:
        return
    storing = conversation.feature_states.get(_UsageStoring)
    storing.is_outdated = True
    if not storing.is_running:
        storing.is_running = True
        group.start_soon(_store_usage, conversation, storing)


async def _store_usage(conversation: Conversation, storing: _UsageStoring) -> None:
    def note_usage(state: SessionState) -> SessionState:
        return replace(state, usage=conversation.models.usage.figures.session)

    try:
        with anyio.CancelScope(shield=True):  # also when the conversation ends with this turn
            while storing.is_outdated:
                storing.is_outdated = False
                await anyio.to_thread.run_sync(conversation.session.update_state, note_usage)
    except StoreFailed:  # the figures are lost with a full disk, and the turn is not
        logger.exception("the tokens of a turn could not be stored")
    finally:
        storing.is_running = False


async def _finish_turn(conversation: Conversation, turn: RunningTurn, failed: bool) -> None:
    """Close what is still open, append the steers that came too late for an answer, and emit TurnEnd."""

    _start_storing_usage(conversation)

    async def close() -> None:
        if not turn.scope.cancel_called:
            await append_late_steers(conversation, turn)
        await notify_client(conversation)
        await close_late_hooks(conversation)

    await _emit_turn_end(conversation, turn, failed, close)


async def _emit_turn_end(
    conversation: Conversation, turn: RunningTurn, failed: bool, close: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Answer open calls in the history and in events, call `close`, then emit TurnEnd."""
    # A failed nested turn has closed them already; the outer turn then emits no second results.
    has_open_calls = failed and not turn.is_closed
    turn.is_closed = failed
    # The history first: it stays valid even if the events cannot be stored.
    unannounced_calls = _answer_open_calls(conversation, turn) if has_open_calls else []
    try:
        for call_id in unannounced_calls:
            await conversation.events.emit(ToolResult(call_id, _cancellation_result(conversation, call_id)))
        if has_open_calls and turn.step:
            await conversation.events.emit(StepInterrupted())
        if close is not None:
            await close()
        await conversation.events.emit(TurnEnd())
    except StoreFailed:
        # The failure that ended the turn was probably the same one; it is the one to report.
        logger.exception("the end of a turn could not be stored")


def _answer_open_calls(conversation: Conversation, turn: RunningTurn) -> list[str]:
    """Answer every open call in the history; return the ids of the calls whose results must still be announced.

    Answers that cannot be stored become pending records. After a cancellation, every call that was announced gets a
    result; after a failed model stream, only the calls that are stored do (wire spec 7.4, 7.6).
    """
    stored = [] if conversation.context.has_pending_records else find_unanswered_calls(conversation.history.messages)
    answers = [
        turn.held_answers.get(call.id) or tool_message(call.id, _cancellation_result(conversation, call.id))
        for call in stored
    ]
    try:
        conversation.context.append(*answers)
    except StoreFailed:
        conversation.context.add_pending_records(*answers)
    announced = turn.open_calls if turn.is_cancelled else [call.id for call in stored]
    return [call_id for call_id in turn.open_calls if call_id in announced]


def _cancellation_result(conversation: Conversation, call_id: str) -> ToolReturnValue:
    return conversation.events.pending_requests.refused_results.get(call_id, CANCELLED)
