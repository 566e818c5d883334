"""`/model [name] [on|off|level]`: switch the model of the session, or how much it thinks (acp spec 3.8)."""

from __future__ import annotations

from typing import get_args

from kimi.application.control.switch_model import current_choice, switch_model
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelChoice, models_by_alias
from kimi.application.settings.settings import ThinkingEffort
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ConfigError, StateError

_THINKING = {"on": True, "off": False}
_EFFORTS = frozenset(get_args(ThinkingEffort))


async def run_model_command(conversation: Conversation, arguments: str) -> None:
    """Switch the model and report it; without arguments, list the models.

    A model that cannot be used is reported, and nothing changes.
    """
    try:
        text = _switch(conversation, arguments.split()) if arguments else _list_models(conversation)
    except (StateError, ConfigError) as error:
        text = str(error)
    await conversation.events.emit(TextPart(text))


def _switch(conversation: Conversation, words: list[str]) -> str:
    thinking, effort = _THINKING.get(words[-1]), words[-1] if words[-1] in _EFFORTS else None
    name = " ".join(words if thinking is None and effort is None else words[:-1])
    return f"Model: {format_choice(switch_model(conversation, name or None, thinking, effort))}"


def _list_models(conversation: Conversation) -> str:
    choice = current_choice(conversation)
    now = f"Model: {format_choice(choice)}" if choice is not None else "No model is chosen."
    return "\n".join(
        [now, "Models:", *(f"- {name}" for name in models_by_alias(conversation.models.require_catalog()) if name)]
    )


def format_choice(choice: ModelChoice) -> str:
    """Return the choice for the user: `name`, `name (thinking)` or `name (thinking: low)`."""
    level = f": {choice.effort}" if choice.effort else ""
    return f"{choice.alias or 'that of the environment'}{f' (thinking{level})' if choice.thinking else ''}"
