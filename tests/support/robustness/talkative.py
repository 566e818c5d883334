"""A model without end for long visits: what it does is named by a word of the prompt."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from kimi.application.ports import ModelItem, OpenModel, ResponseEnd
from kimi.domain.content.message import Function, Message, ToolCall, message_text
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.errors import APIStatusError
from kimi.domain.tools.tool import ToolSpec

WORDS = tuple(
    f"do {word}" for word in ("shell", "question", "external", "wait", "fail", "many", "both", "think", "todo")
)
"""What a prompt may ask of the model; anything else is a greeting."""

OPTIONS = [{"label": label, "description": ""} for label in "AB"]
QUESTION = {"questions": [{"question": "Which?", "header": "Q", "options": OPTIONS}]}


@dataclass
class TalkativeModel:
    """Answers any number of prompts."""

    name: str = "talkative"
    capabilities: frozenset[str] = frozenset()
    context_size: int = 1_000_000
    calls: itertools.count[int] = field(default_factory=itertools.count)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem], None]:
        last = history[-1]
        prompt = "" if last.role == "tool" else message_text(last)
        yield self._items(next((word for word in WORDS if word in prompt), ""), {tool.name for tool in tools})

    async def _items(self, word: str, tools: set[str]) -> AsyncIterator[ModelItem]:
        match word:
            case "do shell":
                yield self._call("Shell", {"command": "true"})
            case "do question" if "AskUserQuestion" in tools:
                yield self._call("AskUserQuestion", QUESTION)
            case "do external" if "ext" in tools:
                yield self._call("ext", {})
            case "do both" if "ext" in tools:
                yield self._call("ext", {})
                yield self._call("Shell", {"command": "true"})
                yield self._call("ext", {})
            case "do todo":
                yield self._call("SetTodoList", {"todos": [{"title": "x", "status": "pending"}]})
            case "do wait":
                yield TextPart("waiting")
                await anyio.sleep_forever()
            case "do fail":
                raise APIStatusError(400, "the provider has failed")
            case "do many":
                for number in range(30):
                    yield TextPart(f"piece {number} ")
            case "do think":
                yield ThinkPart("hm")
                yield TextPart("so")
            case _:
                yield TextPart("hello")
        yield ResponseEnd()

    def _call(self, name: str, arguments: Any) -> ToolCall:
        return ToolCall(f"call-{next(self.calls)}", Function(name, json.dumps(arguments)))


def opening(model: TalkativeModel) -> OpenModel:
    """Return an opener that always returns this model."""
    return lambda session_id, client: model
