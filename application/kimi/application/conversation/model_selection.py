"""The model of a conversation, the user's choice, and the models to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimi.application.ports import ChatModel, ResponseEnd
from kimi.application.settings.settings import explain_missing_key
from kimi.domain.errors import ModelNotSet, StateError
from kimi.domain.turn import TokenUsage, UsageFigures, UsageTotal

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


class UsageLedger:
    """Adds up what model calls have used. Calls of a subagent count in its own ledger and in that of its parent."""

    def __init__(self, parent: UsageLedger | None = None, session: UsageTotal | None = None) -> None:
        self._parent = parent
        self._figures = UsageFigures(session=session or UsageTotal())

    @property
    def figures(self) -> UsageFigures:
        """What was counted: of the running or last turn, and of the session."""
        return self._figures

    def begin_turn(self) -> None:
        """Count the turn from zero."""
        self._figures = replace(self._figures, turn=UsageTotal())

    def restore(self, session: UsageTotal) -> None:
        """Go on from the total of a session that is opened again."""
        self._figures = UsageFigures(session=session)

    def count(self, end: ResponseEnd) -> None:
        """Add a call that ended like this. One whose usage the provider did not report makes the cost unknown."""
        tokens = end.usage or TokenUsage()
        now = self._figures
        self._figures = UsageFigures(now.turn.add(tokens, end.cost), now.session.add(tokens, end.cost))
        if self._parent is not None:
            self._parent.count(end)


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """The models that a conversation can use. `initial` is the model at start-up, None when none was configured."""

    initial: ModelSettings | None
    configured: Mapping[str, ModelSettings]
    open_model: Callable[[ModelSettings], ChatModel]
    """Opens a model. Raises ConfigError when it cannot be used as it is configured."""
    title_model: str | None = None
    """The alias of the model that writes titles; None where the first prompt is the title."""


class ModelSelection:
    """The model that a conversation uses. Only the use-cases in `switch_model` change it."""

    def __init__(
        self,
        model: ChatModel | None,
        load_catalog: Callable[[], ModelCatalog] | None = None,
        usage: UsageLedger | None = None,
    ) -> None:
        self.usage = usage or UsageLedger()
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

    @property
    def title_model(self) -> str | None:
        """The alias of the model that writes titles; None where the first prompt is the title."""
        return self._load_catalog().title_model if self._load_catalog is not None else None

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
