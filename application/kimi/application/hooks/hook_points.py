"""The points at which hooks fire, and the effect of a block at each of them (runtime spec 7.5, wire spec 4.5).

`Stop`, at the end of a turn, is in `stop_hooks`; the start and end of a session are in `session_hooks_lifespan`.
"""

from __future__ import annotations

import logging

from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.message import JsonObject, ToolCall
from kimi.domain.content.parts import UserInput, join_text
from kimi.domain.errors import StoreFailed
from kimi.domain.events.event import Notification
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import ALLOW
from kimi.domain.tools.tool import ToolReturnValue, tool_error

logger = logging.getLogger(__name__)

CALL_BLOCKED = "Blocked by PreToolUse hook"
PROMPT_BLOCKED = "Prompt blocked by hook."
MAX_OUTPUT_CHARS = 2000
MAX_SUBAGENT_CHARS = 500


async def run_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> HookAnswer:
    """`run_hooks.run_hooks`, not even imported where nothing watches the event (start-up time)."""
    if event not in conversation.resources.hooks.watched_events:
        return ALLOW
    from kimi.application.hooks.run_hooks import run_hooks

    return await run_hooks(conversation, event, target, details)


async def fire_hooks(conversation: Conversation, event: str, target: str, details: JsonObject) -> None:
    """Call `run_hooks.fire_hooks`, which is imported only when a hook watches the event."""
    if event in conversation.resources.hooks.watched_events:
        from kimi.application.hooks.run_hooks import fire_hooks

        await fire_hooks(conversation, event, target, details)


async def close_late_hooks(conversation: Conversation) -> None:
    """Call `run_hooks.close_late_hooks`, which is imported only when there are detached hooks."""
    if conversation.resources.hooks.detached_batches:
        from kimi.application.hooks.run_hooks import close_late_hooks

        await close_late_hooks(conversation)


async def run_pre_tool_hooks(
    conversation: Conversation, call: ToolCall, arguments: JsonObject
) -> ToolReturnValue | HookAnswer:
    """Run PreToolUse hooks; return the error result when one blocks the call, else their answer."""
    answer = await run_hooks(conversation, "PreToolUse", call.function.name, _tool_call_details(call, arguments))
    if answer.action == "allow":
        return answer
    logger.info("call %s of %s: blocked by a hook", call.id, call.function.name)
    return tool_error(answer.reason or CALL_BLOCKED, "Hook blocked")


async def fire_post_tool_hooks(
    conversation: Conversation, call: ToolCall, arguments: JsonObject, result: ToolReturnValue
) -> None:
    """Fire PostToolUse or PostToolUseFailure after a tool has run, without waiting for the hooks."""
    event = "PostToolUseFailure" if result.is_error else "PostToolUse"
    if event not in conversation.resources.hooks.watched_events:
        return
    outcome = {"error": result.message} if result.is_error else {"tool_output": join_text(result.output, "\n")}
    cut = {key: text[:MAX_OUTPUT_CHARS] for key, text in outcome.items()}
    await fire_hooks(conversation, event, call.function.name, {**_tool_call_details(call, arguments), **cut})


async def run_prompt_hooks(conversation: Conversation, user_input: UserInput) -> str | None:
    """Run UserPromptSubmit hooks; return the text to answer with when one blocks the prompt, else None.

    Hooks get the text of a prompt that consists of parts as well (R-142). The prompt of a subagent fires no hooks.
    """
    if conversation.subagent is not None:
        return None
    text = join_text(user_input)
    answer = await run_hooks(conversation, "UserPromptSubmit", text, {"prompt": text})
    return None if answer.action == "allow" else answer.reason or PROMPT_BLOCKED


async def run_stop_failure_hooks(conversation: Conversation, error: Exception) -> None:
    """Run StopFailure hooks when a turn ends with an error; their answers are ignored.

    The call waits for them, so that the client can answer before the turn ends.
    """
    if conversation.subagent is not None:
        return
    name = type(error).__name__
    try:
        await run_hooks(conversation, "StopFailure", name, {"error_type": name, "error_message": str(error)})
    except StoreFailed:
        logger.exception("the hooks of a failed turn could not be recorded")


async def run_subagent_start_hooks(conversation: Conversation, agent_type: str, prompt: str) -> None:
    """Run SubagentStart hooks before a subagent of type `agent_type` begins; their answers are ignored."""
    await run_hooks(
        conversation, "SubagentStart", agent_type, {"agent_name": agent_type, "prompt": prompt[:MAX_SUBAGENT_CHARS]}
    )


async def fire_subagent_stop_hooks(conversation: Conversation, agent_type: str, response: str) -> None:
    """Fire SubagentStop after a subagent has returned its result, without waiting for the hooks."""
    await fire_hooks(
        conversation, "SubagentStop", agent_type, {"agent_name": agent_type, "response": response[:MAX_SUBAGENT_CHARS]}
    )


async def run_pre_compact_hooks(conversation: Conversation, trigger: str, token_count: int) -> None:
    """Run PreCompact hooks; their answers are ignored. `trigger` is `auto`, `manual` or `manual-with-prompt`."""
    await run_hooks(conversation, "PreCompact", trigger, {"trigger": trigger, "token_count": token_count})


async def fire_post_compact_hooks(conversation: Conversation, trigger: str, estimated_token_count: int) -> None:
    """Fire PostCompact without waiting for the hooks."""
    details = {"trigger": trigger, "estimated_token_count": estimated_token_count}
    await fire_hooks(conversation, "PostCompact", trigger, details)


async def fire_notification_hooks(conversation: Conversation, notification: Notification, sink: str) -> None:
    """Fire Notification after one was sent to `sink` ("llm" or "wire"), without waiting for the hooks."""
    details = {
        "sink": sink,
        "notification_type": notification.type,
        "title": notification.title,
        "body": notification.body,
        "severity": notification.severity,
    }
    await fire_hooks(conversation, "Notification", notification.type, details)


def _tool_call_details(call: ToolCall, arguments: JsonObject) -> JsonObject:
    return {"tool_name": call.function.name, "tool_input": arguments, "tool_call_id": call.id}
