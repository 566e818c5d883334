"""Servers that speak chat completions, and where each of them differs (runtime spec 3.3): `openai_legacy` for all.

What is known of a server is a row of data, found by its host. Anything else gets the common row, which suits Ollama,
vLLM, llama.cpp, LM Studio, SGLang, DeepSeek and most gateways: nothing of one vendor only, fields that are not set left
out, thinking read under both names that are in use. What a row gets wrong the configuration can put right:
`reasoning_key`, `omit_fields`, `extra_body` and `max_output_size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.models.history.encoded_history import Json
from kimi.infrastructure.models.history.tool_call_sanitizing import make_nine_char_id
from kimi.infrastructure.models.openai.chat import ChatRequestContext, ProviderProfile, keep_schema
from kimi.infrastructure.models.openai.chat_body import HistoryFormat
from kimi.infrastructure.models.openai.chat_stream import ReasoningFields
from kimi.infrastructure.models.thinking import thinks

_RESERVED_FIELDS = frozenset({"model", "messages", "tools", "stream"})
"""Fields that the configuration may neither set nor leave out."""


@dataclass(frozen=True, slots=True)
class CompatibleServer:
    """How one server differs.

    `write` is the field of a message that thinking goes back in; None where servers refuse such a field. `limit` is
    what the length of an answer is called. `sends_null_effort` says whether `reasoning_effort` is sent as null when
    thinking was switched off, as the reference does. `omitted_fields` are never sent. `history` is what it takes.
    """

    reasoning_field: str | None = "reasoning_content"
    limit_field: str = "max_tokens"
    sends_null_effort: bool = True
    omitted_fields: tuple[str, ...] = ()
    history_format: HistoryFormat = field(default_factory=HistoryFormat)


COMMON_SERVER = CompatibleServer()

KNOWN_SERVERS: Mapping[str, CompatibleServer] = {
    "api.openai.com": CompatibleServer(reasoning_field=None, limit_field="max_completion_tokens"),
    "openrouter.ai": CompatibleServer(reasoning_field="reasoning"),
    "api.groq.com": CompatibleServer(reasoning_field="reasoning", limit_field="max_completion_tokens"),
    "api.mistral.ai": CompatibleServer(
        None,
        sends_null_effort=False,
        omitted_fields=("stream_options",),
        history_format=HistoryFormat(make_nine_char_id),
    ),
    "api.deepseek.com": CompatibleServer(history_format=HistoryFormat(joins_texts=True)),
}
"""Host, with everything below it -> what is known of it. Ports say nothing: local servers take the common row."""


def find_server(host: str) -> CompatibleServer:
    """What is known of the server at `host`."""
    host = host.lower().rstrip(".")
    return next(
        (row for name, row in KNOWN_SERVERS.items() if host == name or host.endswith("." + name)), COMMON_SERVER
    )


def make_compatible_profile(settings: ModelSettings, host: str) -> ProviderProfile:
    """The quirks of the server at `host`."""
    server = find_server(host)

    def build_fields(ask: ChatRequestContext) -> Json:
        cap = ask.settings.max_completion_tokens
        limit: Json = {server.limit_field: cap} if cap is not None and cap > 0 else {}
        return {**_build_effort(ask, server), **limit}

    return ProviderProfile(
        build_fields=build_fields,
        adapt_schema=keep_schema,
        reasoning_fields=_resolve_reasoning_fields(settings, server),
        omitted_fields=server.omitted_fields,
        history_format=server.history_format,
    )


def _resolve_reasoning_fields(settings: ModelSettings, server: CompatibleServer) -> ReasoningFields:
    """Where thinking is read and written: as configured (an empty name turns it off), else by the server."""
    if settings.reasoning_key is None:
        return ReasoningFields(("reasoning_content", "reasoning"), server.reasoning_field)
    name = settings.reasoning_key
    return ReasoningFields((name,), name) if name else ReasoningFields((), None)


def _build_effort(context: ChatRequestContext, server: CompatibleServer) -> Json:
    """`reasoning_effort`: as configured or high, null when it was switched off, medium to go on as before (R-76)."""
    if thinks(context.settings):
        return {"reasoning_effort": context.settings.thinking_effort or "high"}
    if context.settings.thinking is False:
        return {"reasoning_effort": None} if server.sends_null_effort else {}
    return {"reasoning_effort": "medium"} if context.has_thinking_in_history() else {}


def check_adjusted_fields(settings: ModelSettings) -> None:
    """Raises ConfigError: `extra_body` or `omit_fields` names a field that the program decides."""
    where = f"providers.{settings.provider_name}: extra_body and omit_fields"
    if ours := sorted({*settings.extra_body, *settings.omit_fields} & _RESERVED_FIELDS):
        raise ConfigError(f"{where} must not name {', '.join(ours)}.")
