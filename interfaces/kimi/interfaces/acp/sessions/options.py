"""Models, thinking and modes as config options of a session, with `models` for old clients (acp spec 1.8 to 1.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from kimi.application.control.approval_modes import MODES, Mode, mode_from_policy, switch_mode
from kimi.application.control.switch_model import current_choice, effort_choices, switch_model, thinking_choices
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelChoice, models_by_alias
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import StateError
from kimi.interfaces.acp.transport.errors import invalid_params

THINKING_SUFFIX: Final = ",thinking"
"""The suffix in the legacy id of a model with thinking on."""

_MODE_TEXTS: Final[Mapping[Mode, tuple[str, str]]] = {
    "default": ("Default", "Ask before changes"),
    "edits": ("Edits", "Edit files here and look around, ask before the rest"),
    "plan": ("Plan", "Read and plan only"),
    "yolo": ("YOLO", "Approve everything automatically"),
    "afk": ("AFK", "Approve everything, dismiss questions"),
}


@dataclass(frozen=True, slots=True)
class _ModelOffer:
    """A model that the client can choose: its id for clients and its alias in the configuration."""

    id: str
    alias: str
    settings: ModelSettings


def build_session_options(conversation: Conversation) -> JsonObject:
    """Return the members of the answer to opening a session, beside its id."""
    offers, choice = _list_model_offers(conversation), current_choice(conversation)
    result: dict[str, Any] = {
        "modes": _describe_modes(conversation),
        "configOptions": build_config_options(conversation),
    }
    if choice is not None and offers:
        result["models"] = _describe_legacy_models(offers, choice)
    return result


def build_config_options(conversation: Conversation) -> list[JsonObject]:
    """Return all options with their current values, the most important first."""
    found: list[JsonObject] = []
    choice = current_choice(conversation)
    offers = _list_model_offers(conversation)
    current = next((offer for offer in offers if choice is not None and offer.alias == choice.alias), None)
    if choice is not None and current is not None:
        models = [{"value": offer.id, "name": offer.id} for offer in offers]
        found.append(_build_select("model", "Model", "model", current.id, models))
        if choices := thinking_choices(current.settings):
            thinks = choice.thinking if choice.thinking in choices else choices[0]
            levels = [*map(_format_on_off, choices), *effort_choices(current.settings)]
            values = [{"value": level, "name": f"Thinking {level}"} for level in levels]
            now = choice.effort if thinks and choice.effort in levels else _format_on_off(thinks)
            found.append(_build_select("thinking", "Thinking", "thought_level", now, values))
    modes = [{"value": mode, "name": _MODE_TEXTS[mode][0], "description": _MODE_TEXTS[mode][1]} for mode in MODES]
    found.append(_build_select("mode", "Mode", "mode", mode_from_policy(conversation.policy), modes))
    return found


def set_option(conversation: Conversation, option_id: str, value: object) -> None:
    """Set one option. Raises RpcError for an unknown option or value."""
    known = {option["id"]: option for option in build_config_options(conversation)}
    if option_id not in known:
        raise invalid_params(f"configId: there is no option '{option_id}'")
    values = [one["value"] for one in known[option_id]["options"]]
    if value not in values:
        raise invalid_params(f"value: '{option_id}' takes one of {', '.join(values)}")
    if option_id == "mode":
        switch_mode(conversation, cast("Mode", value))
    elif option_id == "thinking":
        is_level = value not in ("on", "off")
        switch_model(conversation, thinking=value != "off", effort=str(value) if is_level else None)
    else:
        switch_model(conversation, next(one.alias for one in _list_model_offers(conversation) if one.id == value))


def set_mode(conversation: Conversation, mode_id: str) -> None:
    """Set the mode. Raises RpcError for an unknown mode."""
    if mode_id not in MODES:
        raise invalid_params(f"modeId: the modes are {', '.join(MODES)}")
    switch_mode(conversation, mode_id)


def set_legacy_model(conversation: Conversation, model_id: str) -> None:
    """Set the model, and turn thinking on or off: the suffix `,thinking` turns it on.

    Raises RpcError for an unknown model.
    """
    plain = model_id.removesuffix(THINKING_SUFFIX)
    offer = next((one for one in _list_model_offers(conversation) if one.id == plain), None)
    if offer is None:
        raise invalid_params(f"modelId: there is no model '{plain}'")
    switch_model(conversation, offer.alias, thinking=plain != model_id)


def _list_model_offers(conversation: Conversation) -> list[_ModelOffer]:
    try:
        known = models_by_alias(conversation.models.require_catalog())
    except StateError:
        return []
    return [_ModelOffer(alias or settings.model, alias, settings) for alias, settings in known.items()]


def _describe_modes(conversation: Conversation) -> JsonObject:
    modes = [{"id": mode, "name": _MODE_TEXTS[mode][0], "description": _MODE_TEXTS[mode][1]} for mode in MODES]
    return {"currentModeId": mode_from_policy(conversation.policy), "availableModes": modes}


def _describe_legacy_models(offers: list[_ModelOffer], choice: ModelChoice) -> JsonObject:
    found: list[JsonObject] = []
    current = ""
    for offer in offers:
        for thinks in thinking_choices(offer.settings) or (False,):
            model_id = offer.id + (THINKING_SUFFIX if thinks else "")
            found.append({"modelId": model_id, "name": offer.id + (" (thinking)" if thinks else "")})
            if offer.alias == choice.alias and (thinks == choice.thinking or not current):
                current = model_id
    return {"currentModelId": current, "availableModels": found}


def _build_select(option_id: str, name: str, category: str, value: str, options: list[dict[str, str]]) -> JsonObject:
    return {
        "type": "select",
        "id": option_id,
        "name": name,
        "category": category,
        "currentValue": value,
        "options": options,
    }


def _format_on_off(on: bool) -> str:
    return "on" if on else "off"
