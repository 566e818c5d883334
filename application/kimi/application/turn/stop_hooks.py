"""The Stop hooks, which may make a turn continue once when it is about to finish (wire spec 4.5; R-143)."""

from __future__ import annotations

from kimi.application.control.steer import inject_steers
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import RunningTurn
from kimi.application.hooks.hook_points import run_hooks
from kimi.application.ports import ChatModel, Random
from kimi.application.step.checkpoints import next_checkpoint_records
from kimi.application.step.run_steps import run_steps
from kimi.domain.content.message import Message
from kimi.domain.content.parts import TextPart
from kimi.domain.tools.tool import escape_host_tags
from kimi.domain.turn import TurnStatus


async def run_stop_hooks(
    conversation: Conversation, turn: RunningTurn, status: TurnStatus, model: ChatModel | None, random: Random
) -> TurnStatus:
    """Run the Stop hooks of a turn that is about to end with `status`; return the status that it ends with.

    A block with a reason makes the model continue, with the reason as a user message; Stop then fires again and a
    block is ignored. The turn accepts steers while the hooks run, and continues for them too. Raises what `run_steps`
    raises.
    """
    is_continuation = False
    while (
        status.status == "finished"
        and "Stop" in conversation.resources.hooks.watched_events
        and conversation.subagent is None
    ):
        turn.accepts_steers = model is not None
        answer = await run_hooks(conversation, "Stop", "", {"stop_hook_active": is_continuation})
        if model is None or conversation.events.pending_requests.is_closed:
            break
        goes_on = False
        if answer.action == "block" and answer.reason and not is_continuation:
            reason_message = Message("user", (TextPart(escape_host_tags(answer.reason)),))
            conversation.context.ensure_system_prompt()
            conversation.context.append(*next_checkpoint_records(conversation), reason_message)
            goes_on = is_continuation = True
        if not await inject_steers(conversation, turn, model) and not goes_on:
            break
        status = await run_steps(conversation, turn, model, random)
    turn.accepts_steers = False
    return status
