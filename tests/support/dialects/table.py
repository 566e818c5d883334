"""The table of the provider types over HTTP with their dialects, for the contract of `ChatModel`."""

from __future__ import annotations

from tests.support.dialects import anthropic, chat, gemini, responses
from tests.support.dialects.script import Row

ROWS: tuple[Row, ...] = (
    Row("kimi", chat.DIALECT),
    Row("openai_legacy", chat.DIALECT),
    Row("openai_responses", responses.DIALECT),
    Row("anthropic", anthropic.DIALECT),
    Row("gemini", gemini.DIALECT),
    Row("vertexai", gemini.DIALECT),
)
