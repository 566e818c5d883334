"""Use-case run-flow: the nodes of a flow one after the other, each a complete turn inside the running one.

All of them speak into the same history (runtime spec 5.6, 7.4). `play` runs one of them: it raises what a turn raises.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kimi.application.conversation.conversation import Conversation, RunningTurn
from kimi.domain.content.message import message_text
from kimi.domain.content.parts import TextPart, UserInput
from kimi.domain.skills.flow import Flow, FlowNode, chosen, node_input, ralph_flow
from kimi.domain.turn import TurnStatus

logger = logging.getLogger(__name__)

MAX_MOVES: Final = 1000
RE_ASKS: Final = 3

Play: TypeAlias = Callable[[UserInput], Awaitable[TurnStatus]]


async def run_flow(conversation: Conversation, turn: RunningTurn, flow: Flow, play: Play) -> TurnStatus:
    """Run `flow` from its begin to its end; out of moves, the status tells how many steps they took."""
    status = await _walk(conversation, turn, flow, play, MAX_MOVES)
    return status or TurnStatus("max_steps_reached", steps=turn.steps_taken)


async def run_ralph(
    conversation: Conversation, turn: RunningTurn, user_input: UserInput, iterations: int, play: Play
) -> TurnStatus:
    """Repeat a prompt until the model says STOP, at most `iterations` times (-1: without limit)."""
    limit = None if iterations < 0 else iterations + 1
    status = await _walk(conversation, turn, ralph_flow(user_input), play, limit)
    if status is None:
        await conversation.emit(TextPart(f"The loop ends: the prompt was repeated {iterations} times, its limit."))
    return status or TurnStatus("finished")


async def _walk(
    conversation: Conversation, turn: RunningTurn, flow: Flow, play: Play, max_moves: int | None
) -> TurnStatus | None:
    """None when more moves would be needed. A turn that did not finish, or was rejected, ends the flow."""
    position, moves = flow.begin, 0
    status = TurnStatus("finished")
    while position != flow.end:
        node = flow.nodes[position]
        choice: str | None = None
        if position != flow.begin:
            if moves == max_moves:
                return None
            moves += 1
            status, choice = await _visit(conversation, turn, node, play)
            if _is_over(turn, status):
                return status
        following = node.after(choice)
        if following is None:
            await conversation.emit(TextPart(_why_stuck(node)))
            return TurnStatus("finished")
        position = following
    return status


async def _visit(
    conversation: Conversation, turn: RunningTurn, node: FlowNode, play: Play
) -> tuple[TurnStatus, str | None]:
    """Play a node; a decision is asked for again while its answer chooses none of the branches."""
    status = await play(node_input(node))
    choice = chosen(_last_answer(conversation))
    for _ in range(RE_ASKS):
        if not node.is_decision or _is_over(turn, status) or node.after(choice) is not None:
            break
        logger.info("no branch is called %.80r: asking again", choice)
        status = await play(node_input(node, again=True))
        choice = chosen(_last_answer(conversation))
    return status, choice


def _is_over(turn: RunningTurn, status: TurnStatus) -> bool:
    return turn.rejected or status.status != "finished"


def _last_answer(conversation: Conversation) -> str:
    last = conversation.history.messages[-1]
    return message_text(last) if last.role == "assistant" else ""


def _why_stuck(node: FlowNode) -> str:
    if node.is_decision:
        return f"The flow ends: none of its branches was chosen in {RE_ASKS + 1} answers."
    return "The flow ends: nothing follows this node."
