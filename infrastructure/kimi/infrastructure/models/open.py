"""The choice of a model adapter by the type of the provider (runtime spec 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kimi.application.ports import ChatModel, OpenModel
from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpLayer
from kimi.infrastructure.http.headers import user_agent_text

UserAgent: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an adapter may need beside its settings."""

    session_id: str
    http: HttpLayer
    user_agent: UserAgent
    environ: Mapping[str, str]


def _open_openai_legacy(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.http.client import checked_host
    from kimi.infrastructure.models.openai.chat import OpenAiChat
    from kimi.infrastructure.models.openai.compatible import compatible_quirks

    quirks = compatible_quirks(settings, checked_host(settings.base_url))
    return OpenAiChat(settings, around.session_id, around.http, around.user_agent, quirks)


def _open_kimi(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.kimi.chat import kimi_quirks
    from kimi.infrastructure.models.openai.chat import OpenAiChat

    quirks = kimi_quirks(around.environ, send_device=settings.device_headers)
    return OpenAiChat(settings, around.session_id, around.http, around.user_agent, quirks)


def _open_openai_responses(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.openai.responses import OpenAiResponses

    return OpenAiResponses(settings, around.http, around.user_agent)


def _open_anthropic(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.anthropic.messages import Anthropic

    return Anthropic(settings, around.session_id, around.http, around.user_agent)


def _open_gemini(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.gemini.generate_content import Gemini, developer_access

    return Gemini(settings, around.http, around.user_agent, developer_access(settings))


def _open_vertexai(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.gemini.generate_content import Gemini, vertex_access

    access = vertex_access(settings, around.http, {**around.environ, **settings.env})
    return Gemini(settings, around.http, around.user_agent, access)


def _open_replay(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.offline.cassette import replay_model

    return replay_model(settings, around.session_id, around.environ)


def _open_echo(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.offline.scripted import echo_model

    return echo_model(settings.capabilities, settings.max_context_size)


def _open_scripted(settings: ModelSettings, around: Surroundings) -> ChatModel:
    from kimi.infrastructure.models.offline.scripted import is_traced, load_scripts, scripted_model

    environ = {**around.environ, **settings.env}
    return scripted_model(load_scripts(environ), is_traced(environ), settings.capabilities, settings.max_context_size)


ADAPTERS: Mapping[str, Callable[[ModelSettings, Surroundings], ChatModel]] = {
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
    settings: ModelSettings, session_id: str, http: HttpLayer, user_agent: UserAgent, environ: Mapping[str, str]
) -> ChatModel:
    """A new model for a session. Nothing is sent before its first `stream`.

    `user_agent` is asked at every request: the client's name becomes known only in the handshake. What it answers is
    recorded when `KIMI_RECORD` names a file.

    Raises:
        ConfigError: the type is unknown, or a setting it needs is missing or malformed.
    """
    make = ADAPTERS.get(settings.type)
    if make is None:
        raise ConfigError(_unknown_type(settings))
    if settings.extra_body or settings.omit_fields:
        from kimi.infrastructure.models.openai.compatible import check_adjustments

        check_adjustments(settings)
    model = make(settings, Surroundings(session_id, http, user_agent, environ))
    if not (session_id and environ.get("KIMI_RECORD", "").strip()):
        return model
    from kimi.infrastructure.models.offline.cassette import recorded

    return recorded(model, settings, session_id, environ)


def _unknown_type(settings: ModelSettings) -> str:
    supported = ", ".join(name for name in ADAPTERS if not name.startswith("_"))
    what = f"Provider '{settings.provider_name}' has the type '{settings.type}', which is unknown"
    return f"{what}; use one of these types: {supported}."


def model_opener(
    settings: ModelSettings | None, http: HttpLayer, version: str, environ: Mapping[str, str]
) -> OpenModel:
    """`OpenModel` for one process; `version` is that of this program.

    A scripted model is kept per session, so that its scripts are used up in order however often it is asked for.
    The settings are tried now, so that mistakes in them end the start and not the first turn.

    Raises:
        ConfigError: as `open_model`.
    """
    if settings is None or not settings.usable:
        return lambda session_id, client: None
    chosen = settings
    kept: dict[str, ChatModel] = {}
    open_model(chosen, "", http, lambda: user_agent_text(version), environ)

    def opened(session_id: str, client: Callable[[], str]) -> ChatModel:
        return open_model(chosen, session_id, http, lambda: user_agent_text(version, client()), environ)

    def opened_once(session_id: str, client: Callable[[], str]) -> ChatModel:
        if session_id not in kept:
            kept[session_id] = opened(session_id, client)
        return kept[session_id]

    return opened_once if chosen.type == "_scripted_echo" else opened
