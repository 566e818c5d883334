"""Use-case switch-model: change the model or switch thinking on and off, for one conversation.

The choice is stored with the session and never changes the configuration (acp spec 4.1, 4.5).
"""

from __future__ import annotations

from dataclasses import replace

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelCatalog, ModelChoice, models_by_alias
from kimi.application.ports import ChatModel
from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import StateError


def thinking_choices(model: ModelSettings) -> tuple[bool, ...]:
    """Return the choices for thinking: none for a model that cannot think, only True for one that always does."""
    if "always_thinking" in model.capabilities:
        return (True,)
    return (False, True) if "thinking" in model.capabilities else ()


def current_choice(conversation: Conversation) -> ModelChoice | None:
    """Return the model that the conversation uses now, and whether it thinks; None without a model."""
    started = conversation.models.require_catalog().initial
    if conversation.models.choice is None and started is not None:
        return ModelChoice(started.alias, bool(started.thinking))
    return conversation.models.choice


def switch_model(conversation: Conversation, alias: str | None = None, thinking: bool | None = None) -> ModelChoice:
    """Call `use_model` and store the choice with the session.

    Raises what `use_model` raises, and StoreFailed when the choice applies but could not be stored.
    """
    choice = use_model(conversation, alias, thinking)
    conversation.session.update_state(lambda state: replace(state, model_alias=choice.alias, thinking=choice.thinking))
    return choice


def use_model(conversation: Conversation, alias: str | None = None, thinking: bool | None = None) -> ModelChoice:
    """Use another model, or switch thinking, from the next step on; return the resulting choice.

    None keeps the current value. `thinking` is adjusted to what the model supports.

    Raises:
        StateError: no model has this alias; the message lists the known ones.
        ConfigError: the model cannot be used as it is configured. Nothing has changed then.
    """
    models, now = conversation.models.require_catalog(), current_choice(conversation)
    settings = _find_settings(models, alias if alias is not None else now.alias if now else "")
    wanted = thinking if thinking is not None else bool(now and now.thinking)
    choices = thinking_choices(settings)
    is_thinking = wanted if wanted in choices else bool(choices) and choices[0]
    thinking_setting = is_thinking if choices else None
    choice = ModelChoice(settings.alias, is_thinking)
    conversation.models.use(models.open_model(settings.model_copy(update={"thinking": thinking_setting})), choice)
    conversation.toolset.reset_builtin_tools()  # some tools are available with certain models only
    return choice


def use_unlisted_model(conversation: Conversation, model: ChatModel) -> None:
    """Use a model that is not in the configuration until another one is chosen. Nothing is stored."""
    conversation.models.use(model)
    conversation.toolset.reset_builtin_tools()


def reload_model(conversation: Conversation) -> None:
    """Open the current model again, because the configuration has changed. The choice is kept.

    A model that is no longer usable stays as it is. Raises ConfigError as `use_model` does.
    """
    settings = resolve_chosen_model(conversation)
    if settings is not None and settings.is_usable:
        conversation.models.use(conversation.models.require_catalog().open_model(settings))


def resolve_chosen_model(conversation: Conversation) -> ModelSettings | None:
    """Return the settings of the current model, with the chosen value of thinking."""
    choice, models = current_choice(conversation), conversation.models.require_catalog()
    settings = models_by_alias(models).get(choice.alias) if choice is not None else models.initial
    if settings is None or choice is None or conversation.models.choice is None:
        return settings
    thinking = choice.thinking if settings.thinking is not None else None
    return settings.model_copy(update={"thinking": thinking})


def _find_settings(models: ModelCatalog, alias: str) -> ModelSettings:
    known = models_by_alias(models)
    if alias in known:
        return known[alias]
    names = ", ".join(sorted(name for name in known if name))
    advice = f"choose one of: {names}" if names else "no models are configured, add one with 'kimi setup'"
    raise StateError(f"Unknown model '{alias}'; {advice}.")
