"""Compose the models, the HTTP client to their providers, and what observes both (runtime spec 2.4, 2.9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kimi.application.conversation.model_selection import ModelCatalog
from kimi.application.ports import ChatModel, OpenModel, SessionFiles
from kimi.application.settings.settings import ModelSettings, ProviderPreset, Settings
from kimi.domain.client import user_agent_suffix
from kimi.domain.errors import ConfigError
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import OpenNamedModel
    from kimi.application.conversation.conversation import Conversation
    from kimi.domain.agents.agent import AgentSpec
    from kimi.infrastructure.http.client import HttpClient
    from kimi.infrastructure.observability.conversation_spans import ConversationSpans
    from kimi.infrastructure.observability.instruments import Instruments

_NO_LIBRARY = "observability is enabled, but its library is not installed; install 'kimi-wire[otel]'."


def build_http(environ: Mapping[str, str]) -> HttpClient:
    """Return the HTTP client that all conversations share."""
    from kimi.infrastructure.http.client import HttpClient

    return HttpClient(environ)


def start_exporting(settings: Settings, environ: Mapping[str, str]) -> None:
    """Send spans and metrics of this process to a collector, if they are enabled. Raises ConfigError, as below."""
    if settings.observability.enabled:
        try:
            from kimi.infrastructure.observability.exporting import start_exporting

            start_exporting(__version__, environ)
        except ImportError:
            raise ConfigError(_NO_LIBRARY) from None


def build_instruments(settings: Settings) -> Instruments | None:
    """Return what spans are made with; None, with nothing imported, unless they are enabled.

    Raises ConfigError: the library is not installed.
    """
    if not settings.observability.enabled:
        return None
    try:
        from kimi.infrastructure.observability.instruments import create_instruments
    except ImportError:
        raise ConfigError(_NO_LIBRARY) from None
    return create_instruments(__version__)


def build_spans(instruments: Instruments | None, files: SessionFiles, agent: AgentSpec) -> ConversationSpans | None:
    """Return what makes spans of a conversation's events, if they are enabled."""
    if instruments is None:
        return None
    from kimi.infrastructure.observability.conversation_spans import ConversationSpans

    return ConversationSpans(instruments, files.id, agent.name)


def _trace_model(model: ChatModel, instruments: Instruments | None, settings: ModelSettings) -> ChatModel:
    if instruments is None:
        return model
    from kimi.infrastructure.observability.traced_model import TracedChatModel

    return TracedChatModel(model, instruments, settings.type, settings.model)


def build_model_opener(
    settings: Settings, http: HttpClient, environ: Mapping[str, str], instruments: Instruments | None
) -> OpenModel:
    """Return a function that opens the model at the start. Raises ConfigError: its configuration cannot be used."""
    from kimi.infrastructure.models.provider_types import make_model_opener

    open_model = make_model_opener(settings.model, http, __version__, environ)
    if instruments is None or (chosen := settings.model) is None:
        return open_model

    def open_traced(session_id: str, client: Callable[[], str]) -> ChatModel | None:
        model = open_model(session_id, client)
        return None if model is None else _trace_model(model, instruments, chosen)

    return open_traced


def build_model_catalog(
    settings: Settings,
    http: HttpClient,
    environ: Mapping[str, str],
    conversation: Callable[[], Conversation],
    instruments: Instruments | None,
) -> ModelCatalog:
    """Return the models to choose from. A model names the conversation's client in its requests to the provider."""

    def open_chosen(chosen: ModelSettings) -> ChatModel:
        from kimi.infrastructure.http.headers import format_user_agent
        from kimi.infrastructure.models.provider_types import open_model

        current = conversation()

        def user_agent() -> str:
            return format_user_agent(__version__, user_agent_suffix(current.client))

        model = open_model(chosen, current.id, http, user_agent, environ)
        return _trace_model(model, instruments, chosen)

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


def build_scripted_model(*scripts: str, capabilities: frozenset[str] = frozenset()) -> ChatModel:
    """Return a model that answers each call with the next script, for tests without a network (runtime spec 3.8).

    A script has a line for each part of the answer, such as `text: Hello`; `write_scripted_call` writes that of a call.
    """
    from kimi.infrastructure.models.offline.scripted import make_scripted_model

    return make_scripted_model(scripts, False, capabilities, 100_000)


def write_scripted_call(name: str, /, **arguments: object) -> str:
    """Return the line of a script with which the model calls a tool."""
    import json
    import uuid

    return "tool_call: " + json.dumps({"id": uuid.uuid4().hex, "name": name, "arguments": json.dumps(arguments)})
