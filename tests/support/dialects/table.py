"""The rows of the contract of `ChatModel`: every provider type over HTTP, with its dialect."""

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
