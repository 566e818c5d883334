"""Use-case steer: add a user message to the running turn (wire spec 3.4).

A message is either refused, or becomes part of the turn and is announced by SteerInput. No await separates the check
from the change, neither when a message is accepted nor when the turn ends, so no message is lost in between.
"""

from __future__ import annotations

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import IDLE, RunningTurn
from kimi.application.ports import ChatModel
from kimi.domain.content.message import Message
from kimi.domain.content.parts import UserInput, as_parts, missing_capabilities
from kimi.domain.errors import CapabilityMissing, StateError
from kimi.domain.events.event import SteerInput


def steer(conversation: Conversation, user_input: UserInput) -> None:
    """Queue a message for the running turn. Raises StateError when no turn accepts messages."""
    turn = conversation.turn
    if turn is None or not turn.accepts_steers or turn.scope.cancel_called:
        raise StateError(IDLE)
    turn.steers.append(user_input)


async def inject_steers(conversation: Conversation, turn: RunningTurn, model: ChatModel) -> bool:
    """Append the queued messages to the history in order; return whether there were any.

    Raises CapabilityMissing for content that the model does not support.
    """
    injected = False
    while turn.steers:
        user_input = turn.steers.popleft()
        if missing := missing_capabilities(as_parts(user_input), model.capabilities):
            raise CapabilityMissing(model.name, missing)
        await _inject_steer(conversation, user_input)
        injected = True
    return injected


async def append_late_steers(conversation: Conversation, turn: RunningTurn) -> None:
    """Append the queued messages of a turn that ends without being cancelled, for the next turn to read."""
    turn.accepts_steers = False
    while turn.steers:
        await _inject_steer(conversation, turn.steers.popleft())


async def _inject_steer(conversation: Conversation, user_input: UserInput) -> None:
    conversation.context.append(Message("user", as_parts(user_input)))
    await conversation.events.emit(SteerInput(user_input))
