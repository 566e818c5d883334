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
from kimi.infrastructure.models.history.tool_call_sanitizing import nine_letters
from kimi.infrastructure.models.openai.chat import Ask, Quirks
from kimi.infrastructure.models.openai.chat_body import HistoryForm
from kimi.infrastructure.models.openai.chat_stream import ReasoningNames
from kimi.infrastructure.models.thinking import thinks

ADJUSTABLE_TYPES = ("kimi", "openai_legacy")
"""Provider types whose body `extra_body` and `omit_fields` may change."""

_OURS = frozenset({"model", "messages", "tools", "stream"})
"""Fields that the configuration may neither set nor leave out."""


@dataclass(frozen=True, slots=True)
class Server:
    """How one server differs.

    `write` is the field of a message that thinking goes back in; None where servers refuse such a field. `limit` is
    what the length of an answer is called. `null_effort` says whether `reasoning_effort` is sent as null when thinking
    was switched off, as the reference does. `omit` are fields that are never sent. `history` is what it takes of one.
    """

    write: str | None = "reasoning_content"
    limit: str = "max_tokens"
    null_effort: bool = True
    omit: tuple[str, ...] = ()
    history: HistoryForm = field(default_factory=HistoryForm)


COMMON = Server()

KNOWN: Mapping[str, Server] = {
    "api.openai.com": Server(write=None, limit="max_completion_tokens"),
    "openrouter.ai": Server(write="reasoning"),
    "api.groq.com": Server(write="reasoning", limit="max_completion_tokens"),
    "api.mistral.ai": Server(None, null_effort=False, omit=("stream_options",), history=HistoryForm(nine_letters)),
    "api.deepseek.com": Server(history=HistoryForm(text_only=True)),
}
"""Host, with everything below it -> what is known of it. Ports say nothing: local servers take the common row."""


def server_at(host: str) -> Server:
    """What is known of the server at `host`."""
    host = host.lower().rstrip(".")
    return next((row for name, row in KNOWN.items() if host == name or host.endswith("." + name)), COMMON)


def compatible_quirks(settings: ModelSettings, host: str) -> Quirks:
    """The quirks of the server at `host`."""
    server = server_at(host)

    def fields(ask: Ask) -> Json:
        cap = ask.settings.max_completion_tokens
        limit: Json = {server.limit: cap} if cap is not None and cap > 0 else {}
        return {**_effort(ask, server), **limit}

    return Quirks(
        fields=fields,
        schema=lambda schema: schema,
        headers=lambda host, agent: {},
        reasoning=_reasoning_names(settings, server),
        omit=server.omit,
        history=server.history,
    )


def _reasoning_names(settings: ModelSettings, server: Server) -> ReasoningNames:
    """Where thinking is read and written: as configured (an empty name turns it off), else by the server."""
    if settings.reasoning_key is None:
        return ReasoningNames(("reasoning_content", "reasoning"), server.write)
    name = settings.reasoning_key
    return ReasoningNames((name,), name) if name else ReasoningNames((), None)


def _effort(ask: Ask, server: Server) -> Json:
    """`reasoning_effort`: high, an explicit null when it was switched off, medium to go on as before (R-76)."""
    if thinks(ask.settings):
        return {"reasoning_effort": "high"}
    if ask.settings.thinking is False:
        return {"reasoning_effort": None} if server.null_effort else {}
    return {"reasoning_effort": "medium"} if ask.thinking_in_history() else {}


def check_adjustments(settings: ModelSettings) -> None:
    """Can the body be changed as `extra_body` and `omit_fields` say?

    Raises:
        ConfigError: not for this type of provider, or not in these fields.
    """
    changed = {*settings.extra_body, *settings.omit_fields}
    where = f"providers.{settings.provider_name}: extra_body and omit_fields"
    if changed and settings.type not in ADJUSTABLE_TYPES:
        raise ConfigError(f"{where} are for providers of the types {' and '.join(ADJUSTABLE_TYPES)} only.")
    if ours := sorted(changed & _OURS):
        raise ConfigError(f"{where} must not name {', '.join(ours)}.")
