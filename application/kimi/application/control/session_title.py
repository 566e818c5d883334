"""Use-case titles: what a session is called."""

from __future__ import annotations

from dataclasses import replace

from kimi.application.conversation.conversation import Conversation
from kimi.domain.history.session import shorten_title

MAX_TITLE = 200


def set_title(conversation: Conversation, text: str) -> str:
    """Name the session: one line, at most 200 characters. Return the title as it is stored. Raises StoreFailed."""
    title = shorten_title(text, MAX_TITLE)
    conversation.session.update_state(lambda state: replace(state, custom_title=title))
    return title


def session_title(conversation: Conversation) -> str | None:
    """The title that was set, by the user or by the first prompt."""
    return conversation.files.state.custom_title
