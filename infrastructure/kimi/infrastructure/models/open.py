"""The choice of a model adapter by the type of the provider (runtime spec 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kimi.application.ports import ChatModel, OpenModel
from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.http.headers import format_user_agent

UserAgent: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """What an adapter may need beside its settings."""

    session_id: str
    http: HttpClient
    user_agent: UserAgent
    environ: Mapping[str, str]


def _open_openai_legacy(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.http.client import parse_host
    from kimi.infrastructure.models.openai.chat import OpenAiChatModel
    from kimi.infrastructure.models.openai.compatible import make_compatible_profile

    quirks = make_compatible_profile(settings, parse_host(settings.base_url))
    return OpenAiChatModel(settings, context.session_id, context.http, context.user_agent, quirks)


def _open_kimi(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.kimi.profile import make_kimi_profile
    from kimi.infrastructure.models.openai.chat import OpenAiChatModel

    quirks = make_kimi_profile(context.environ, send_device_headers=settings.device_headers)
    return OpenAiChatModel(settings, context.session_id, context.http, context.user_agent, quirks)


def _open_openai_responses(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.openai.responses import OpenAiResponsesModel

    return OpenAiResponsesModel(settings, context.http, context.user_agent)


def _open_anthropic(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.anthropic.messages import AnthropicModel

    return AnthropicModel(settings, context.session_id, context.http, context.user_agent)


def _open_gemini(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.gemini.generate_content import GeminiModel, make_developer_resolver

    return GeminiModel(settings, context.http, context.user_agent, make_developer_resolver(settings))


def _open_vertexai(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.gemini.generate_content import GeminiModel, make_vertex_resolver

    access = make_vertex_resolver(settings, context.http, {**context.environ, **settings.env})
    return GeminiModel(settings, context.http, context.user_agent, access)


def _open_replay(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.offline.cassette import make_replay_model

    return make_replay_model(settings, context.session_id, context.environ)


def _open_echo(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.offline.scripted import make_echo_model

    return make_echo_model(settings.capabilities, settings.max_context_size)


def _open_scripted(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.offline.scripted import is_traced, load_scripts, make_scripted_model

    environ = {**context.environ, **settings.env}
    return make_scripted_model(
        load_scripts(environ), is_traced(environ), settings.capabilities, settings.max_context_size
    )


ADAPTERS: Mapping[str, Callable[[ModelSettings, AdapterContext], ChatModel]] = {
    "kimi": _open_kimi,
    "openai_legacy": _open_openai_legacy,
    "openai_responses": _open_openai_responses,
    "anthropic": _open_anthropic,
    "gemini": _open_gemini,
    "google_genai": _open_gemini,
    "vertexai": _open_vertexai,
    "_echo": _open_echo,
    "_scripted_echo": _open_scripted,
    "_replay": _open_replay,
}
"""Provider type -> how its adapter is made, the adapter's module imported then."""


def open_model(
    settings: ModelSettings, session_id: str, http: HttpClient, user_agent: UserAgent, environ: Mapping[str, str]
) -> ChatModel:
    """A new model for a session. Nothing is sent before its first `stream`.

    `user_agent` is asked at every request: the client's name becomes known only in the handshake. What it answers is
    recorded when `KIMI_RECORD` names a file.

    Raises:
        ConfigError: the type is unknown, or a setting it needs is missing or malformed.
    """
    make = ADAPTERS.get(settings.type)
    if make is None:
        raise ConfigError(_format_unknown_type(settings))
    if settings.extra_body or settings.omit_fields:
        from kimi.infrastructure.models.openai.compatible import check_body_adjustments

        check_body_adjustments(settings)
    model = make(settings, AdapterContext(session_id, http, user_agent, environ))
    if not (session_id and environ.get("KIMI_RECORD", "").strip()):
        return model
    from kimi.infrastructure.models.offline.cassette import make_recording_model

    return make_recording_model(model, settings, session_id, environ)


def _format_unknown_type(settings: ModelSettings) -> str:
    supported = ", ".join(name for name in ADAPTERS if not name.startswith("_"))
    what = f"Provider '{settings.provider_name}' has the type '{settings.type}', which is unknown"
    return f"{what}; use one of these types: {supported}."


def make_model_opener(
    settings: ModelSettings | None, http: HttpClient, version: str, environ: Mapping[str, str]
) -> OpenModel:
    """`OpenModel` for one process; `version` is that of this program.

    A scripted model is kept per session, so that its scripts are used up in order however often it is asked for.
    The settings are tried now, so that mistakes in them end the start and not the first turn.

    Raises:
        ConfigError: as `open_model`.
    """
    if settings is None or not settings.is_usable:
        return lambda session_id, client: None
    chosen = settings
    kept: dict[str, ChatModel] = {}
    open_model(chosen, "", http, lambda: format_user_agent(version), environ)

    def open_new(session_id: str, client: Callable[[], str]) -> ChatModel:
        return open_model(chosen, session_id, http, lambda: format_user_agent(version, client()), environ)

    def open_kept(session_id: str, client: Callable[[], str]) -> ChatModel:
        if session_id not in kept:
            kept[session_id] = open_new(session_id, client)
        return kept[session_id]

    return open_kept if chosen.type == "_scripted_echo" else open_new
