"""Use-case resolve-request: the answer to a waiting approval, tool call, question or hook."""

from __future__ import annotations

import logging

from kimi.application.conversation.conversation import Conversation
from kimi.domain.events.request import Answer, ApprovalAnswer

logger = logging.getLogger(__name__)


def resolve_request(conversation: Conversation, request_id: str, answer: Answer) -> bool:
    """Resolve a request; False when nothing with this id waits (unknown, late or second answer).

    Approval for the session stores the request's key and releases every waiting request of the same key. The one
    who waits announces the outcome, so this never blocks the reader of a client's answers.
    """
    key = conversation.events.pending_requests.memory_key(request_id)
    if not conversation.events.pending_requests.resolve(request_id, answer):
        logger.info("answer to a request that does not wait: %s", request_id)
        return False
    if isinstance(answer, ApprovalAnswer) and answer.response == "approve_for_session" and key is not None:
        conversation.permissions.remember_answer(key)
        conversation.events.pending_requests.approve_matching(key)
    return True
