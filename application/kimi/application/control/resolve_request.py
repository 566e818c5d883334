"""Use-case resolve-request: resolve a pending approval, tool call, question or hook with the client's answer."""

from __future__ import annotations

import logging

from kimi.application.conversation.conversation import Conversation
from kimi.domain.events.request import Answer, ApprovalAnswer

logger = logging.getLogger(__name__)


def resolve_request(conversation: Conversation, request_id: str, answer: Answer) -> bool:
    """Resolve a request; return False when none with this id is pending (unknown, late or second answer).

    Approval for the session stores the key of the request and approves every pending request with the same key that the
    policy then allows; where nothing can be remembered it is an approval for once. The task that waits for the answer
    announces it, so this call never blocks the reader of the client's messages.
    """
    # Read first: resolving removes the request from the registry.
    key = conversation.events.pending_requests.memory_key(request_id)
    if key is None and isinstance(answer, ApprovalAnswer) and answer.response == "approve_for_session":
        answer = ApprovalAnswer("approve", answer.feedback)
    if not conversation.events.pending_requests.resolve(request_id, answer):
        logger.info("answer to a request that does not wait: %s", request_id)
        return False
    if isinstance(answer, ApprovalAnswer) and answer.response == "approve_for_session" and key is not None:
        conversation.permissions.remember_answer(key)
        conversation.events.pending_requests.approve_matching(key)
    return True
