"""The model of a conversation, the user's choice, and the models to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi.application.ports import ChatModel
from kimi.application.settings.settings import explain_missing_key
from kimi.domain.errors import ModelNotSet, StateError

if TYPE_CHECKING:
    from kimi.application.settings.settings import ModelSettings, ThinkingEffort


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A chosen model, whether it thinks, and how much. `alias` is "" for a model that only the environment describes.

    Without `effort` it thinks as much as its adapter decides.
    """

    alias: str
    thinking: bool
    effort: ThinkingEffort | None = None


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """The models that a conversation can use. `initial` is the model at start-up, None when none was configured."""

    initial: ModelSettings | None
    configured: Mapping[str, ModelSettings]
    open_model: Callable[[ModelSettings], ChatModel]
    """Opens a model. Raises ConfigError when it cannot be used as it is configured."""


class ModelSelection:
    """The model that a conversation uses. Only the use-cases in `switch_model` change it."""

    def __init__(self, model: ChatModel | None, load_catalog: Callable[[], ModelCatalog] | None = None) -> None:
        self._model = model
        self._choice: ModelChoice | None = None
        self._load_catalog = load_catalog

    @property
    def model(self) -> ChatModel | None:
        """The model of the next step; None when none is configured."""
        return self._model

    def require_model(self) -> ChatModel:
        """Return the model of the next step. Raises ModelNotSet, which says that a key is missing if it is that."""
        if self._model is None:
            raise ModelNotSet(self.explain_missing_model())
        return self._model

    def explain_missing_model(self) -> str:
        """Return what the model of the start lacks; empty when it lacks no key, or is not known."""
        initial = self._load_catalog().initial if self._load_catalog is not None else None
        return explain_missing_key(initial) if initial is not None and initial.lacks_key else ""

    @property
    def choice(self) -> ModelChoice | None:
        """The user's choice; None until a model is chosen."""
        return self._choice

    def require_catalog(self) -> ModelCatalog:
        """Return the models to choose from. Raises StateError when the model cannot be switched."""
        if self._load_catalog is None:
            raise StateError("The model cannot be switched here")
        return self._load_catalog()

    def use(self, model: ChatModel, choice: ModelChoice | None = None) -> None:
        """Use this model from the next step on. Without `choice` the last choice is kept."""
        self._model = model
        self._choice = choice or self._choice


def models_by_alias(models: ModelCatalog) -> dict[str, ModelSettings]:
    """Return the models to choose from by alias: the initial one as it was started, the others as configured."""
    started = {models.initial.alias: models.initial} if models.initial is not None and models.initial.is_usable else {}
    return {**models.configured, **started}
