"""Google's `streamGenerateContent` over HTTP: the adapter for `gemini` and `vertexai` (runtime spec 3.6).

Both use the same protocol. They differ in the URL and in authentication: `ResolveEndpoint`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from kimi.application.ports import ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message
from kimi.domain.errors import ChatProviderError, ConfigError
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.http.client import HttpClient, parse_host
from kimi.infrastructure.http.headers import to_printable_ascii
from kimi.infrastructure.models.gemini.body import (
    GeminiMessageRules,
    build_generation_config,
    encode_system_field,
    encode_tools_field,
    find_remote_media,
    is_gemini_3,
    make_unit_rules,
)
from kimi.infrastructure.models.gemini.stream import GeminiEventReader
from kimi.infrastructure.models.gemini.vertex_access import GoogleCloudTokens, check_google_auth
from kimi.infrastructure.models.history.encoded_history import (
    EncodedHistoryCache,
    LastResultCache,
    assemble_body,
    encode_compact_json,
)
from kimi.infrastructure.models.history.remote_media import fetch_media
from kimi.infrastructure.models.streaming_request import StreamingRequest

_METHOD = ":streamGenerateContent?alt=sse"
_VERSION = re.compile(r"/v\d+[a-z0-9]*$")
_MODEL_ID = re.compile(r"[\w.@~-]+(/[\w.@~-]+)*")
_PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
_LOCATION_VARIABLES = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION")
_GLOBAL_LOCATION = "global"
_CLOUD_HOST = "aiplatform.googleapis.com"


@dataclass(frozen=True, slots=True)
class GeminiEndpoint:
    """The URL of a request and the header that authenticates it."""

    url: str
    headers: Mapping[str, str]


ResolveEndpoint = Callable[[], Awaitable[GeminiEndpoint]]
"""Is called for every request, because access tokens expire."""


class GeminiModel:
    """A `ChatModel` over `POST …/models/{model}:streamGenerateContent`. Each call of `stream` sends one request."""

    def __init__(
        self,
        settings: ModelSettings,
        http: HttpClient,
        user_agent: Callable[[], str],
        resolve_endpoint: ResolveEndpoint,
    ) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._http = http
        self._streaming_request = StreamingRequest(settings, http, user_agent)
        self._resolve_endpoint = resolve_endpoint
        self._fetched_media: dict[str, tuple[str, bytes] | str] = {}
        rules = GeminiMessageRules(is_gemini_3(settings.model), self._fetched_media)
        self._history_cache = EncodedHistoryCache(make_unit_rules(settings.capabilities, rules))
        self._system_encoder = LastResultCache(encode_system_field)
        self._tools_encoder = LastResultCache(encode_tools_field)
        self._generation_config = build_generation_config(settings)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        await self._fetch_media(history)
        body = self._encode_body(system, history, tools)
        address = await self._resolve_endpoint()
        async with self._streaming_request.send(address.url, address.headers, body, GeminiEventReader()) as items:
            yield items

    async def _fetch_media(self, history: Sequence[Message]) -> None:
        """Download the media that the provider does not fetch: each URL once, and only what the model can read."""
        wanted = find_remote_media(history, self.capabilities) - self._fetched_media.keys()
        if wanted:
            self._fetched_media.update(await fetch_media(self._http, sorted(wanted)))

    def _encode_body(self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec]) -> bytes:
        """Return the body. Messages, tools and a system prompt that were encoded before are reused."""
        turns = [unit for unit in self._history_cache.encode(history).units if unit]
        fields = [data for data in (self._system_encoder(system), self._tools_encoder(tuple(tools))) if data]
        more = (
            encode_compact_json({"generationConfig": self._generation_config})[1:] if self._generation_config else b""
        )
        body = assemble_body(b'{"contents":[', turns, [*fields, *([more] if more else [])])
        return body if more else body + b"}"


# --- addresses --------------------------------------------------------------------------------------------------


def make_developer_resolver(settings: ModelSettings) -> ResolveEndpoint:
    """Return the resolver for the Gemini API, which takes a key in a header.

    Raises:
        ConfigError: the model's id cannot be part of a URL.
    """
    model = _quote_model_id(settings.model)
    path = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    return _make_fixed_resolver(
        GeminiEndpoint(f"{_add_api_version(settings.base_url, 'v1beta')}/{path}{_METHOD}", _build_key_header(settings))
    )


def make_vertex_resolver(settings: ModelSettings, http: HttpClient, environ: Mapping[str, str]) -> ResolveEndpoint:
    """Return the resolver for Vertex AI, which takes a key (express mode), or credentials for a project and location.

    Raises:
        ConfigError: the model's id cannot be part of a URL, the base URL is not a URL, or google-auth is needed and
            not installed.
    """
    parse_host(settings.base_url)
    path = _build_vertex_path(_quote_model_id(settings.model))
    if _has_own_key(settings):
        return _make_fixed_resolver(
            GeminiEndpoint(f"{_build_vertex_base_url(settings, environ)}/{path}{_METHOD}", _build_key_header(settings))
        )
    check_google_auth()
    tokens = GoogleCloudTokens(http, environ)

    async def resolve_endpoint() -> GeminiEndpoint:
        token = await tokens.get_token()
        project = environ.get(_PROJECT_VARIABLE) or await tokens.get_project()
        if not project:
            raise ChatProviderError(
                f"No Google Cloud project is known: set {_PROJECT_VARIABLE} in the env of provider "
                f"'{settings.provider_name}'."
            )
        parent_path = f"projects/{quote(project, safe='')}/locations/{quote(_find_location(environ), safe='')}"
        url = f"{_build_vertex_base_url(settings, environ)}/{parent_path}/{path}{_METHOD}"
        return GeminiEndpoint(url, {"Authorization": f"Bearer {token}"})

    return resolve_endpoint


def _make_fixed_resolver(endpoint: GeminiEndpoint) -> ResolveEndpoint:
    async def resolve_endpoint() -> GeminiEndpoint:
        return endpoint

    return resolve_endpoint


def _has_own_key(settings: ModelSettings) -> bool:
    """Whether there is a key, or a header in its place."""
    return bool(settings.api_key) or any(name.lower() == "authorization" for name in settings.custom_headers)


def _build_vertex_base_url(settings: ModelSettings, environ: Mapping[str, str]) -> str:
    """Return the base URL with its version. Each location has its own host, which replaces the common one."""
    base, location = settings.base_url, _find_location(environ)
    if urlsplit(base).hostname == _CLOUD_HOST and location != _GLOBAL_LOCATION and not settings.api_key:
        base = base.replace(_CLOUD_HOST, f"{location}-{_CLOUD_HOST}", 1)
    return _add_api_version(base, "v1beta1")


def _find_location(environ: Mapping[str, str]) -> str:
    return next((place for name in _LOCATION_VARIABLES if (place := environ.get(name))), _GLOBAL_LOCATION)


def _add_api_version(base_url: str, version: str) -> str:
    """Append the API version to `base_url` unless it ends with one already."""
    base = base_url.rstrip("/")
    return base if _VERSION.search(base) else f"{base}/{version}"


def _build_vertex_path(model: str) -> str:
    """Return the path of a model, which may be given as `publisher/model`."""
    if model.startswith(("publishers/", "projects/", "models/")):
        return model
    publisher, _, name = model.rpartition("/")
    return f"publishers/{publisher or 'google'}/models/{name}"


def _quote_model_id(model: str) -> str:
    if not _MODEL_ID.fullmatch(model) or ".." in model:
        raise ConfigError(f"models: '{model}' cannot be the id of a Gemini model.")
    return quote(model, safe="/@~")


def _build_key_header(settings: ModelSettings) -> dict[str, str]:
    key = to_printable_ascii(settings.api_key)
    return {"x-goog-api-key": key} if key else {}
