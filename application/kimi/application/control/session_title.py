"""Use-case titles: set and read the title of a session."""

from __future__ import annotations

from dataclasses import replace

from kimi.application.conversation.conversation import Conversation
from kimi.domain.history.session import shorten_title

MAX_TITLE = 200


def set_title(conversation: Conversation, text: str) -> str:
    """Set the title of the session, one line of at most 200 characters; return it as stored. Raises StoreFailed."""
    title = shorten_title(text, MAX_TITLE)
    conversation.session.update_state(lambda state: replace(state, custom_title=title))
    return title


def session_title(conversation: Conversation) -> str | None:
    """Return the title that the user or the first prompt has set, if any; one that others stored may hold anything."""
    title = conversation.files.state.custom_title
    return None if title is None else shorten_title(title, MAX_TITLE)
