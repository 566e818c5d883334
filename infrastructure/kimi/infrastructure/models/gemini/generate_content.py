"""Google's `streamGenerateContent` over HTTP: the adapter for `gemini` and `vertexai` (runtime spec 3.6).

Both speak the same; they differ in the address and in who may come in: `Access`.
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
from kimi.infrastructure.http.client import HttpLayer, checked_host
from kimi.infrastructure.http.headers import printable
from kimi.infrastructure.models.gemini.body import (
    GeminiRules,
    generation_config,
    is_gemini_3,
    remote_media,
    system_field,
    tools_field,
    unit_rules,
)
from kimi.infrastructure.models.gemini.stream import GeminiReader
from kimi.infrastructure.models.gemini.vertex_access import CloudTokens, check_library
from kimi.infrastructure.models.history.encoded_history import KeptHistories, Latest, assembled, encode
from kimi.infrastructure.models.history.remote_media import fetch_all
from kimi.infrastructure.models.streaming_request import Exchange

_METHOD = ":streamGenerateContent?alt=sse"
_VERSION = re.compile(r"/v\d+[a-z0-9]*$")
_PLAIN_MODEL = re.compile(r"[\w.@~-]+(/[\w.@~-]+)*")
_PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
_LOCATION_VARIABLES = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION")
_ANYWHERE = "global"
_CLOUD_HOST = "aiplatform.googleapis.com"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a request goes, and the header that opens the door."""

    url: str
    headers: Mapping[str, str]


Access = Callable[[], Awaitable[Address]]
"""Asked at every request: tokens do not last."""


class Gemini:
    """A `ChatModel` over `POST …/models/{model}:streamGenerateContent`. One request per call of `stream`."""

    def __init__(self, settings: ModelSettings, http: HttpLayer, user_agent: Callable[[], str], access: Access) -> None:
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._http = http
        self._exchange = Exchange(settings, http, user_agent)
        self._access = access
        self._media: dict[str, tuple[str, bytes] | str] = {}
        rules = GeminiRules(is_gemini_3(settings.model), self._media)
        self._histories = KeptHistories(unit_rules(settings.capabilities, rules))
        self._system = Latest(system_field)
        self._tools = Latest(tools_field)
        self._config = generation_config(settings)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        await self._fetch_media(history)
        body = self._body(system, history, tools)
        address = await self._access()
        async with self._exchange.ask(address.url, address.headers, body, GeminiReader()) as items:
            yield items

    async def _fetch_media(self, history: Sequence[Message]) -> None:
        """Download what the provider cannot fetch; each address once, and only what the model can read."""
        wanted = remote_media(history, self.capabilities) - self._media.keys()
        if wanted:
            self._media.update(await fetch_all(self._http, sorted(wanted)))

    def _body(self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec]) -> bytes:
        """The body; messages, tools and system prompt that are known already are not encoded again."""
        turns = [unit for unit in self._histories.encoded(history).units if unit]
        fields = [data for data in (self._system(system), self._tools(tuple(tools))) if data]
        more = encode({"generationConfig": self._config})[1:] if self._config else b""
        body = assembled(b'{"contents":[', turns, [*fields, *([more] if more else [])])
        return body if more else body + b"}"


# --- addresses --------------------------------------------------------------------------------------------------


def developer_access(settings: ModelSettings) -> Access:
    """The Gemini API: a key in a header.

    Raises:
        ConfigError: the model's id cannot stand in a URL.
    """
    model = _checked_model(settings.model)
    path = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    return _always(Address(f"{_versioned(settings.base_url, 'v1beta')}/{path}{_METHOD}", _key_header(settings)))


def vertex_access(settings: ModelSettings, http: HttpLayer, environ: Mapping[str, str]) -> Access:
    """Vertex AI: with a key in express mode, else with the credentials of Google Cloud for a project and a place.

    Raises:
        ConfigError: the model's id cannot stand in a URL, the base URL is none, or google-auth is needed and missing.
    """
    checked_host(settings.base_url)
    path = _vertex_path(_checked_model(settings.model))
    if _brings_its_own_key(settings):
        return _always(Address(f"{_vertex_root(settings, environ)}/{path}{_METHOD}", _key_header(settings)))
    check_library()
    tokens = CloudTokens(http, environ)

    async def access() -> Address:
        token = await tokens.token()
        project = environ.get(_PROJECT_VARIABLE) or await tokens.project()
        if not project:
            raise ChatProviderError(
                f"No Google Cloud project is known: set {_PROJECT_VARIABLE} in the env of provider "
                f"'{settings.provider_name}'."
            )
        place = f"projects/{quote(project, safe='')}/locations/{quote(_location(environ), safe='')}"
        url = f"{_vertex_root(settings, environ)}/{place}/{path}{_METHOD}"
        return Address(url, {"Authorization": f"Bearer {token}"})

    return access


def _always(address: Address) -> Access:
    async def access() -> Address:
        return address

    return access


def _brings_its_own_key(settings: ModelSettings) -> bool:
    """A key, or a header that stands for one."""
    return bool(settings.api_key) or any(name.lower() == "authorization" for name in settings.custom_headers)


def _vertex_root(settings: ModelSettings, environ: Mapping[str, str]) -> str:
    """The versioned base URL. A place has a host of its own: the common one stands for it."""
    base, location = settings.base_url, _location(environ)
    if urlsplit(base).hostname == _CLOUD_HOST and location != _ANYWHERE and not settings.api_key:
        base = base.replace(_CLOUD_HOST, f"{location}-{_CLOUD_HOST}", 1)
    return _versioned(base, "v1beta1")


def _location(environ: Mapping[str, str]) -> str:
    return next((place for name in _LOCATION_VARIABLES if (place := environ.get(name))), _ANYWHERE)


def _versioned(base_url: str, version: str) -> str:
    """`base_url` with a version of the API at its end, which it may have already."""
    base = base_url.rstrip("/")
    return base if _VERSION.search(base) else f"{base}/{version}"


def _vertex_path(model: str) -> str:
    """The path of a model; `publisher/model` is understood, too."""
    if model.startswith(("publishers/", "projects/", "models/")):
        return model
    publisher, _, name = model.rpartition("/")
    return f"publishers/{publisher or 'google'}/models/{name}"


def _checked_model(model: str) -> str:
    if not _PLAIN_MODEL.fullmatch(model) or ".." in model:
        raise ConfigError(f"models: '{model}' cannot be the id of a Gemini model.")
    return quote(model, safe="/@~")


def _key_header(settings: ModelSettings) -> dict[str, str]:
    key = printable(settings.api_key)
    return {"x-goog-api-key": key} if key else {}
