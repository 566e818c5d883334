"""The types of providers: what the configuration, the environment, setup and the adapters must know of each.

`PROVIDER_TYPES` is the one table. A new type is a row of it and the adapter that the row opens (runtime spec 2.4, 2.5).
This module is loaded with the configuration: it imports no adapter before a model of the type is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kimi.application.settings.settings import ModelSettings, ProviderPreset, ThinkingEffort, explain_missing_key
from kimi.domain.errors import ConfigError

if TYPE_CHECKING:
    from kimi.application.ports import ChatModel, OpenModel
    from kimi.infrastructure.http.client import HttpClient

UserAgent: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """What an adapter may need beside its settings."""

    session_id: str
    http: HttpClient
    user_agent: UserAgent
    environ: Mapping[str, str]


OpenAdapter: TypeAlias = "Callable[[ModelSettings, AdapterContext], ChatModel]"
"""Makes the adapter of a type. Raises ConfigError: a setting that it needs is missing or malformed."""


@dataclass(frozen=True, slots=True)
class ProviderType:
    """A type of provider. One that begins with `_` is for tests: it needs neither URL nor key.

    `variables` is the beginning of the names of variables that replace what is configured: with "KIMI" these are
    `KIMI_BASE_URL` and `KIMI_API_KEY`, and with `has_model_variables` those that describe the model too
    (`KIMI_MODEL_NAME` and others). `path_variables` are variables of its `env` table that name a file. Setup offers the
    presets of all types in the order of `setup_rank`.
    """

    name: str
    open: OpenAdapter | None
    """None for a type that a file may name, but that cannot be used."""
    aliases: tuple[str, ...] = ()
    variables: str | None = None
    has_model_variables: bool = False
    path_variables: tuple[str, ...] = ()
    has_machine_credentials: bool = False
    """Whether requests are signed with credentials of the machine, so that no key is needed."""
    effort_levels: tuple[ThinkingEffort, ...] = ()
    """The levels of `thinking_effort` that can be sent; none where the API has no field for it."""
    takes_body_adjustments: bool = False
    """Whether `extra_body` and `omit_fields` of a provider count."""
    is_deferrable: bool = False
    """Whether its settings can be checked without the adapter, which is then made with the first request."""
    keeps_model: bool = False
    """Whether a session keeps one model object: its scripts are used up in order however often it is asked for."""
    setup_rank: int = 0
    presets: tuple[ProviderPreset, ...] = ()

    @property
    def url_variable(self) -> str | None:
        """The variable whose URL is used instead of the configured one."""
        return f"{self.variables}_BASE_URL" if self.variables else None

    @property
    def key_variable(self) -> str | None:
        """The variable whose key is used instead of the configured one, at each start."""
        return f"{self.variables}_API_KEY" if self.variables else None


# --- the adapters: each is imported when a model of its type is opened ------------------------------------------


def _open_openai_legacy(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.http.client import parse_host
    from kimi.infrastructure.models.openai.chat import OpenAiChatModel
    from kimi.infrastructure.models.openai.compatible import make_compatible_profile

    profile = make_compatible_profile(settings, parse_host(settings.base_url))
    return OpenAiChatModel(settings, context.session_id, context.http, context.user_agent, profile)


def _open_kimi(settings: ModelSettings, context: AdapterContext) -> ChatModel:
    from kimi.infrastructure.models.openai.chat import OpenAiChatModel
    from kimi.infrastructure.models.openai.kimi_profile import make_kimi_profile

    profile = make_kimi_profile()
    return OpenAiChatModel(settings, context.session_id, context.http, context.user_agent, profile)


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


# --- the table --------------------------------------------------------------------------------------------------

_SEES_AND_THINKS: Final = ("image_in", "thinking", "video_in")
_CODING_PLAN: Final = "https://api.kimi.com/coding/v1"

_OPENAI_EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh")
_GEMINI_EFFORTS: Final = ("minimal", "low", "medium", "high")

_ROWS: Final = (
    ProviderType(
        "kimi",
        _open_kimi,
        variables="KIMI",
        has_model_variables=True,
        takes_body_adjustments=True,
        is_deferrable=True,
        setup_rank=1,
        presets=(
            ProviderPreset(
                "kimi",
                "Kimi (Moonshot AI)",
                "kimi",
                "https://api.moonshot.ai/v1",
                model="kimi-k2-thinking",
                context_size=262_144,
                key_page="https://platform.moonshot.ai/console/api-keys",
            ),
            ProviderPreset(
                "kimi-cn",
                "Kimi in China",
                "kimi",
                "https://api.moonshot.cn/v1",
                model="kimi-k2-thinking",
                context_size=262_144,
                key_page="https://platform.moonshot.cn/console/api-keys",
            ),
            ProviderPreset(
                "kimi-code",
                "Kimi Code, the coding plan",
                "kimi",
                _CODING_PLAN,
                model="kimi-for-coding",
                context_size=262_144,
                key_page="https://www.kimi.com/code/console",
                services=(
                    ("moonshot_search", f"{_CODING_PLAN}/search"),
                    ("moonshot_fetch", f"{_CODING_PLAN}/fetch"),
                ),
                is_subscription=True,
            ),
        ),
    ),
    ProviderType(
        "openai_legacy",
        _open_openai_legacy,
        variables="OPENAI",
        effort_levels=_OPENAI_EFFORTS,
        takes_body_adjustments=True,
        is_deferrable=True,
        setup_rank=6,  # behind the vendors' own types: it fits any server
        presets=(
            ProviderPreset(
                "deepseek",
                "DeepSeek",
                "openai_legacy",
                "https://api.deepseek.com/v1",
                model="deepseek-chat",
                key_page="https://platform.deepseek.com/api_keys",
            ),
            ProviderPreset(
                "openrouter",
                "OpenRouter",
                "openai_legacy",
                "https://openrouter.ai/api/v1",
                key_page="https://openrouter.ai/settings/keys",
            ),
            ProviderPreset(
                "ollama", "Ollama, on this machine", "openai_legacy", "http://127.0.0.1:11434/v1", False, "", 32_768
            ),
            ProviderPreset(
                "lmstudio", "LM Studio, on this machine", "openai_legacy", "http://127.0.0.1:1234/v1", False, "", 32_768
            ),
            ProviderPreset("vllm", "vLLM, on this machine", "openai_legacy", "http://127.0.0.1:8000/v1", False),
            ProviderPreset(
                "llama.cpp",
                "llama.cpp, on this machine",
                "openai_legacy",
                "http://127.0.0.1:8080/v1",
                False,
                "",
                32_768,
            ),
            ProviderPreset(
                "openai_legacy", "Another server with OpenAI's chat completions", "openai_legacy", needs_key=False
            ),
        ),
    ),
    ProviderType(
        "openai_responses",
        _open_openai_responses,
        variables="OPENAI",
        effort_levels=_OPENAI_EFFORTS,
        is_deferrable=True,
        setup_rank=3,
        presets=(
            ProviderPreset(
                "openai_responses",
                "OpenAI",
                "openai_responses",
                "https://api.openai.com/v1",
                context_size=200_000,
                capabilities=("image_in",),
                key_page="https://platform.openai.com/api-keys",
            ),
        ),
    ),
    ProviderType(
        "anthropic",
        _open_anthropic,
        effort_levels=("low", "medium", "high", "max"),
        is_deferrable=True,
        setup_rank=2,
        presets=(
            ProviderPreset(
                "anthropic",
                "Anthropic",
                "anthropic",
                "https://api.anthropic.com",
                context_size=200_000,
                capabilities=("image_in", "thinking"),
                key_page="https://console.anthropic.com/settings/keys",
            ),
        ),
    ),
    ProviderType(
        "gemini",
        _open_gemini,
        aliases=("google_genai",),
        effort_levels=_GEMINI_EFFORTS,
        setup_rank=4,
        presets=(
            ProviderPreset(
                "gemini",
                "Google Gemini",
                "gemini",
                "https://generativelanguage.googleapis.com",
                context_size=1_000_000,
                capabilities=_SEES_AND_THINKS,
                key_page="https://aistudio.google.com/apikey",
            ),
        ),
    ),
    ProviderType(
        "vertexai",
        _open_vertexai,
        effort_levels=_GEMINI_EFFORTS,
        path_variables=("GOOGLE_APPLICATION_CREDENTIALS",),
        has_machine_credentials=True,
        setup_rank=5,
        presets=(
            ProviderPreset(
                "vertexai",
                "Google Vertex AI",
                "vertexai",
                "https://aiplatform.googleapis.com",
                needs_key=False,
                context_size=1_000_000,
                capabilities=_SEES_AND_THINKS,
                variables=(
                    ("GOOGLE_CLOUD_PROJECT", "Google Cloud project"),
                    ("GOOGLE_CLOUD_LOCATION", "Google Cloud location"),
                ),
            ),
        ),
    ),
    ProviderType("_echo", _open_echo),
    ProviderType("_scripted_echo", _open_scripted, path_variables=("KIMI_SCRIPTED_ECHO_SCRIPTS",), keeps_model=True),
    ProviderType("_chaos", None),
    ProviderType("_replay", _open_replay, path_variables=("KIMI_REPLAY",)),
)

PROVIDER_TYPES: Final[Mapping[str, ProviderType]] = {row.name: row for row in _ROWS}
"""Every type by its name, in the order in which messages name them."""

TYPE_BY_ALIAS: Final[Mapping[str, str]] = {alias: row.name for row in _ROWS for alias in row.aliases}
"""Old names of types, which files may still use."""

ENVIRONMENT_TYPE: Final = "kimi"
"""The type of the provider that environment variables alone can describe."""


def list_provider_presets() -> tuple[ProviderPreset, ...]:
    """The providers that setup knows by name, in the order in which they are offered. Every type that is not for tests
    has a preset of its own name. Names of models are suggestions: providers change them.
    """
    return tuple(preset for row in sorted(_ROWS, key=lambda row: row.setup_rank) for preset in row.presets)


def find_preset_at(base_url: str) -> ProviderPreset | None:
    """Return what is known of the endpoint, by its host; None when it is none of the known ones."""
    host = _find_host(base_url)
    known = (preset for row in _ROWS for preset in row.presets if preset.key_page)
    return next((preset for preset in known if _find_host(preset.base_url) == host), None)


def find_key_page(base_url: str) -> str:
    """Return the page on which keys for the host of an endpoint are made; empty when it is none of the known ones."""
    preset = find_preset_at(base_url)
    return preset.key_page if preset is not None else ""


def _find_host(url: str) -> str:
    """Return the host of a URL in lower case, without user and port."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()


def list_key_variables() -> dict[str, str]:
    """Type -> the variable whose key is used, at each start, instead of the configured one (runtime spec 2.5)."""
    return {row.name: row.key_variable for row in _ROWS if row.key_variable is not None}


# --- opening ----------------------------------------------------------------------------------------------------


def open_model(
    settings: ModelSettings, session_id: str, http: HttpClient, user_agent: UserAgent, environ: Mapping[str, str]
) -> ChatModel:
    """A new model for a session. Nothing is sent before its first `stream`.

    `user_agent` is asked at every request: the client's name becomes known only in the handshake. What it answers is
    recorded when `KIMI_RECORD` names a file.

    Raises:
        ConfigError: the type is unknown, or a setting it needs is missing or malformed, the key among them.
    """
    if settings.lacks_key:
        raise ConfigError(explain_missing_key(settings))
    row = _find_row(settings)
    if row is None or row.open is None:
        raise ConfigError(_format_unknown_type(settings))
    _check_body_adjustments(settings, row)
    _check_thinking_effort(settings, row)
    model = _open_or_defer(row, row.open, settings, AdapterContext(session_id, http, user_agent, environ))
    if session_id and environ.get("KIMI_RECORD", "").strip():
        from kimi.infrastructure.models.offline.cassette import make_recording_model

        model = make_recording_model(model, settings, session_id, environ)
    if settings.prices is None:
        return model
    from kimi.infrastructure.models.priced import PricedChatModel

    return PricedChatModel(model, settings.prices)


def _open_or_defer(
    row: ProviderType, open_adapter: OpenAdapter, settings: ModelSettings, context: AdapterContext
) -> ChatModel:
    if not row.is_deferrable:
        return open_adapter(settings, context)
    from kimi.infrastructure.models.deferred import DeferredChatModel  # start-up time: the table needs no HTTP

    return DeferredChatModel(settings, partial(open_adapter, settings, context))


def import_adapter(settings: ModelSettings | None, http: HttpClient) -> None:
    """Import what the first request to the provider needs, by making an adapter that nobody uses.

    Meant for a thread, after the handshake was answered.
    """
    if settings is None or not settings.is_usable:
        return
    row = _find_row(settings)
    if row is not None and row.is_deferrable and row.open is not None:
        row.open(settings, AdapterContext("", http, lambda: "", {}))


def _find_row(settings: ModelSettings) -> ProviderType | None:
    return PROVIDER_TYPES.get(TYPE_BY_ALIAS.get(settings.type, settings.type))


def _format_unknown_type(settings: ModelSettings) -> str:
    supported = ", ".join(name for row in _ROWS if not row.name.startswith("_") for name in (row.name, *row.aliases))
    what = f"Provider '{settings.provider_name}' has the type '{settings.type}', which is unknown"
    return f"{what}; use one of these types: {supported}."


def _check_body_adjustments(settings: ModelSettings, row: ProviderType) -> None:
    """Raises ConfigError: the body cannot be changed for this type of provider, or not in these fields."""
    if not (settings.extra_body or settings.omit_fields):
        return
    if not row.takes_body_adjustments:
        types = " and ".join(row.name for row in _ROWS if row.takes_body_adjustments)
        where = f"providers.{settings.provider_name}: extra_body and omit_fields"
        raise ConfigError(f"{where} are for providers of the types {types} only.")
    from kimi.infrastructure.models.openai.compatible import check_adjusted_fields

    check_adjusted_fields(settings)


def _check_thinking_effort(settings: ModelSettings, row: ProviderType) -> None:
    """Raises ConfigError: the level of thinking cannot be sent to this type of provider, or means nothing there."""
    effort = settings.thinking_effort
    if effort is None:
        return
    where = f"models.{settings.alias}.thinking_effort"
    if not row.effort_levels:
        raise ConfigError(
            f"{where}: providers of the type {row.name} have no levels of thinking; remove it, and switch thinking "
            "on or off with default_thinking."
        )
    if effort not in row.effort_levels:
        raise ConfigError(f"{where}: the levels of the type {row.name} are {', '.join(row.effort_levels)}.")
    if not settings.capabilities & {"thinking", "always_thinking"}:
        raise ConfigError(f"{where}: the model is not known to think; add 'thinking' to its capabilities.")


def make_model_opener(
    settings: ModelSettings | None, http: HttpClient, version: str, environ: Mapping[str, str]
) -> OpenModel:
    """`OpenModel` for one process; `version` is that of this program.

    The settings are tried now, so that mistakes in them end the start and not the first turn.

    Raises:
        ConfigError: as `open_model`.
    """
    if settings is None or not settings.is_usable:  # without a key too: nothing is sent, and prompts say why
        return lambda session_id, client: None
    from kimi.infrastructure.http.headers import format_user_agent

    chosen = settings
    kept: dict[str, ChatModel] = {}
    open_model(chosen, "", http, lambda: format_user_agent(version), environ)

    def open_new(session_id: str, client: Callable[[], str]) -> ChatModel:
        return open_model(chosen, session_id, http, lambda: format_user_agent(version, client()), environ)

    def open_kept(session_id: str, client: Callable[[], str]) -> ChatModel:
        if session_id not in kept:
            kept[session_id] = open_new(session_id, client)
        return kept[session_id]

    row = _find_row(chosen)
    return open_kept if row is not None and row.keeps_model else open_new
