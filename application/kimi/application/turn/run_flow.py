"""Use-case run-flow: run the nodes of a flow in order, each as a complete nested turn (runtime spec 5.6, 7.4).

All nodes share one history. `run_nested_turn` runs a node; its exceptions, those of a turn, pass through.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import RunningTurn
from kimi.domain.content.message import message_text
from kimi.domain.content.parts import TextPart, UserInput
from kimi.domain.skills.flow import Flow, FlowNode, build_node_input, build_ralph_flow, parse_choice
from kimi.domain.turn import TurnStatus

logger = logging.getLogger(__name__)

MAX_MOVES: Final = 1000
MAX_CHOICE_RETRIES: Final = 3

RunNestedTurn: TypeAlias = Callable[[UserInput], Awaitable[TurnStatus]]


async def run_flow(
    conversation: Conversation, turn: RunningTurn, flow: Flow, run_nested_turn: RunNestedTurn
) -> TurnStatus:
    """Run `flow` from its begin to its end. The status `max_steps_reached` after `MAX_MOVES` nodes holds the steps."""
    status = await _run_nodes(conversation, turn, flow, run_nested_turn, MAX_MOVES)
    return status or TurnStatus("max_steps_reached", steps=turn.total_steps)


async def run_ralph(
    conversation: Conversation,
    turn: RunningTurn,
    user_input: UserInput,
    iterations: int,
    run_nested_turn: RunNestedTurn,
) -> TurnStatus:
    """Repeat a prompt until the model answers STOP, at most `iterations` times; -1 means without limit."""
    limit = None if iterations < 0 else iterations + 1
    status = await _run_nodes(conversation, turn, build_ralph_flow(user_input), run_nested_turn, limit)
    if status is None:
        await conversation.events.emit(
            TextPart(f"The loop ends: the prompt was repeated {iterations} times, its limit.")
        )
    return status or TurnStatus("finished")


async def _run_nodes(
    conversation: Conversation, turn: RunningTurn, flow: Flow, run_nested_turn: RunNestedTurn, max_moves: int | None
) -> TurnStatus | None:
    """Run nodes until the flow ends; return None when it needs more than `max_moves` nodes.

    A nested turn that did not finish, or in which the user rejected a call, ends the flow.
    """
    position, moves = flow.begin, 0
    status = TurnStatus("finished")
    while position != flow.end:
        node = flow.nodes[position]
        choice: str | None = None
        if position != flow.begin:
            if moves == max_moves:
                return None
            moves += 1
            status, choice = await _run_node(conversation, turn, node, run_nested_turn)
            if _is_over(turn, status):
                return status
        following = node.next_node(choice)
        if following is None:
            await conversation.events.emit(TextPart(_format_dead_end(node)))
            return TurnStatus("finished")
        position = following
    return status


async def _run_node(
    conversation: Conversation, turn: RunningTurn, node: FlowNode, run_nested_turn: RunNestedTurn
) -> tuple[TurnStatus, str | None]:
    """Run a node and return its status and choice; a decision is repeated while its answer names no branch."""
    status = await run_nested_turn(build_node_input(node))
    choice = parse_choice(_last_answer(conversation))
    for _ in range(MAX_CHOICE_RETRIES):
        if not node.is_decision or _is_over(turn, status) or node.next_node(choice) is not None:
            break
        logger.info("no branch is called %.80r: asking again", choice)
        status = await run_nested_turn(build_node_input(node, is_retry=True))
        choice = parse_choice(_last_answer(conversation))
    return status, choice


def _is_over(turn: RunningTurn, status: TurnStatus) -> bool:
    return turn.has_rejected_call or status.status != "finished"


def _last_answer(conversation: Conversation) -> str:
    last = conversation.history.messages[-1]
    return message_text(last) if last.role == "assistant" else ""


def _format_dead_end(node: FlowNode) -> str:
    if node.is_decision:
        return f"The flow ends: none of its branches was chosen in {MAX_CHOICE_RETRIES + 1} answers."
    return "The flow ends: nothing follows this node."
