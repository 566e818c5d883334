"""The models that a conversation can choose from, and what was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kimi.application.ports import ChatModel
from kimi.application.settings.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model by its alias in the configuration, "" for one that only the environment describes; does it think?"""

    alias: str
    thinking: bool


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """The models that a conversation can use: `started` is the one of the start, None when none was configured."""

    initial: ModelSettings | None
    configured: Mapping[str, ModelSettings]
    open_model: Callable[[ModelSettings], ChatModel]
    """Raises ConfigError: the model cannot be used as it is configured."""


def models_by_alias(models: ModelCatalog) -> dict[str, ModelSettings]:
    """What can be chosen, by alias: that of the start as it was started, the others as they are configured."""
    started = {models.initial.alias: models.initial} if models.initial is not None and models.initial.is_usable else {}
    return {**models.configured, **started}
