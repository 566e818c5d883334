"""Compose the models and the HTTP client to their providers (runtime spec 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kimi.application.conversation.model_selection import ModelCatalog
from kimi.application.ports import ChatModel, OpenModel
from kimi.application.settings.settings import ModelSettings, ProviderPreset, Settings
from kimi.domain.client import user_agent_suffix
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import OpenNamedModel
    from kimi.application.conversation.conversation import Conversation
    from kimi.infrastructure.http.client import HttpClient


def build_http(environ: Mapping[str, str]) -> HttpClient:
    """Return the HTTP client that all conversations share."""
    from kimi.infrastructure.http.client import HttpClient

    return HttpClient(environ)


def build_model_opener(settings: Settings, http: HttpClient, environ: Mapping[str, str]) -> OpenModel:
    """Return a function that opens the model at the start. Raises ConfigError: its configuration cannot be used."""
    from kimi.infrastructure.models.provider_types import make_model_opener

    return make_model_opener(settings.model, http, __version__, environ)


def build_model_catalog(
    settings: Settings, http: HttpClient, environ: Mapping[str, str], conversation: Callable[[], Conversation]
) -> ModelCatalog:
    """Return the models to choose from. A model names the conversation's client in its requests to the provider."""

    def open_chosen(chosen: ModelSettings) -> ChatModel:
        from kimi.infrastructure.http.headers import format_user_agent
        from kimi.infrastructure.models.provider_types import open_model

        current = conversation()

        def user_agent() -> str:
            return format_user_agent(__version__, user_agent_suffix(current.client))

        return open_model(chosen, current.id, http, user_agent, environ)

    return ModelCatalog(settings.model, settings.models, open_chosen, settings.title_model)


def build_named_model_opener(models: ModelCatalog) -> OpenNamedModel:
    """Return a function that opens a configured model by its alias, for a subagent."""
    return lambda alias: models.open_model(models.configured[alias])


def list_provider_presets() -> tuple[ProviderPreset, ...]:
    """Return the providers that setup knows by name, in the order in which it offers them."""
    from kimi.infrastructure.models.provider_types import list_provider_presets as list_presets

    return list_presets()


def list_key_variables() -> Mapping[str, str]:
    """Return by provider type the variable whose key, read at each start, replaces the configured one."""
    from kimi.infrastructure.models.provider_types import list_key_variables as list_variables

    return list_variables()
