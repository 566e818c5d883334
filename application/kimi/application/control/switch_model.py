"""Use-case switch-model: change the model, switch thinking on and off, or say how much it thinks, in one conversation.

The choice is stored with the session and never changes the configuration (acp spec 4.1, 4.5).
"""

from __future__ import annotations

from dataclasses import replace

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelCatalog, ModelChoice, models_by_alias
from kimi.application.ports import ChatModel
from kimi.application.settings.settings import ModelSettings, ThinkingEffort
from kimi.domain.errors import StateError


def thinking_choices(model: ModelSettings) -> tuple[bool, ...]:
    """Return the choices for thinking: none for a model that cannot think, only True for one that always does."""
    if "always_thinking" in model.capabilities:
        return (True,)
    return (False, True) if "thinking" in model.capabilities else ()


def effort_choices(model: ModelSettings) -> tuple[ThinkingEffort, ...]:
    """Return how much a model can be asked to think, from little to much; nothing where that cannot be chosen."""
    return model.effort_levels if thinking_choices(model) else ()


def current_choice(conversation: Conversation) -> ModelChoice | None:
    """Return the model that the conversation uses now, and whether it thinks; None without a model."""
    started = conversation.models.require_catalog().initial
    if conversation.models.choice is None and started is not None:
        return ModelChoice(started.alias, bool(started.thinking), started.thinking_effort)
    return conversation.models.choice


def switch_model(
    conversation: Conversation, alias: str | None = None, thinking: bool | None = None, effort: str | None = None
) -> ModelChoice:
    """Call `use_model` and store the choice with the session.

    Raises what `use_model` raises, and StoreFailed when the choice applies but could not be stored.
    """
    choice = use_model(conversation, alias, thinking, effort)
    conversation.session.update_state(
        lambda state: replace(state, model_alias=choice.alias, thinking=choice.thinking, thinking_effort=choice.effort)
    )
    return choice


def use_model(
    conversation: Conversation, alias: str | None = None, thinking: bool | None = None, effort: str | None = None
) -> ModelChoice:
    """Use another model, or switch thinking, from the next step on; return the resulting choice.

    None keeps the current value; another model begins with the effort of its configuration. `thinking` is adjusted to
    what the model supports, and `effort`, which must be one of its `effort_choices`, switches it on.

    Raises:
        StateError: no model has this alias, or it cannot be asked to think this much; the message lists what can be
            chosen.
        ConfigError: the model cannot be used as it is configured. Nothing has changed then.
    """
    models, now = conversation.models.require_catalog(), current_choice(conversation)
    settings = _find_settings(models, alias if alias is not None else now.alias if now else "")
    level = _find_effort(settings, effort) if effort is not None else _current_effort(settings, now)
    wanted = thinking if thinking is not None else effort is not None or bool(now and now.thinking)
    choices = thinking_choices(settings)
    is_thinking = wanted if wanted in choices else bool(choices) and choices[0]
    thinking_setting = is_thinking if choices else None
    choice = ModelChoice(settings.alias, is_thinking, level)
    changed = {"thinking": thinking_setting, "thinking_effort": level}
    conversation.models.use(models.open_model(settings.model_copy(update=changed)), choice)
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
    return settings.model_copy(update={"thinking": thinking, "thinking_effort": choice.effort})


def _current_effort(settings: ModelSettings, now: ModelChoice | None) -> ThinkingEffort | None:
    return now.effort if now is not None and now.alias == settings.alias else settings.thinking_effort


def _find_effort(settings: ModelSettings, effort: str) -> ThinkingEffort:
    known = effort_choices(settings)
    for level in known:
        if level == effort:
            return level
    name = settings.alias or settings.model
    if not thinking_choices(settings):
        raise StateError(f"The model '{name}' is not known to think: it has no level of thinking.")
    if not known:
        raise StateError(f"The provider of '{name}' has no levels of thinking: switch it on or off.")
    raise StateError(f"Unknown level of thinking '{effort}' for '{name}'; choose one of: {', '.join(known)}.")


def _find_settings(models: ModelCatalog, alias: str) -> ModelSettings:
    known = models_by_alias(models)
    if alias in known:
        return known[alias]
    names = ", ".join(sorted(name for name in known if name))
    advice = f"choose one of: {names}" if names else "no models are configured, add one with 'kimi setup'"
    raise StateError(f"Unknown model '{alias}'; {advice}.")
