"""A model adapter of your own: the native interface of Ollama, which streams one JSON object a line.

    python examples/custom_model.py qwen3 "Why is the sky blue?"          # needs `ollama serve`
    async with open_agent(".", OllamaModel("qwen3")) as agent: ...

An adapter turns the history into a request, yields parts as they come and one `ResponseEnd`, raises the errors of
`kimi.interfaces.embed.models` only, and closes the connection when it is left. It does not retry: the agent does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp

from kimi.interfaces.embed import open_agent
from kimi.interfaces.embed.models import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    Function,
    Message,
    ModelItem,
    ResponseEnd,
    StopReason,
    TextPart,
    ThinkPart,
    TokenUsage,
    ToolCall,
    ToolSpec,
    message_text,
)

_STOP_REASONS: Mapping[object, StopReason] = {"stop": "end", "length": "length"}


class OllamaModel:
    """A `ChatModel` over Ollama's `/api/chat`."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, name: str, base_url: str = "http://127.0.0.1:11434", context_size: int = 32_768) -> None:
        self.name = name
        self.context_size = context_size
        self._url = f"{base_url}/api/chat"

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem], None]:
        """Send the request and yield what comes back; see the port `ChatModel`."""
        body = {
            "model": self.name,
            "messages": [{"role": "system", "content": system}, *map(_encode_message, history)],
            "tools": [_encode_tool(spec) for spec in tools],
            "options": {"num_ctx": self.context_size},
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            try:
                response = await session.post(self._url, json=body)
            except TimeoutError as error:
                raise APITimeoutError("Ollama did not answer in time.") from error
            except aiohttp.ClientError as error:
                raise APIConnectionError(f"Ollama cannot be reached at {self._url}: {error}") from error
            async with response:
                if response.status != 200:
                    raise APIStatusError(response.status, f"Ollama refused: {await _read_reason(response)}")
                yield _read_items(response)


async def _read_reason(response: aiohttp.ClientResponse) -> str:
    try:
        return (await response.text(errors="replace"))[:500]
    except (aiohttp.ClientError, TimeoutError):
        return "(no reason)"


async def _read_items(response: aiohttp.ClientResponse) -> AsyncGenerator[ModelItem, None]:
    has_spoken = has_called = False
    try:
        async for line in response.content:
            piece: dict[str, Any] = json.loads(line)
            if "error" in piece:
                raise APIStatusError(500, f"Ollama failed: {piece['error']}")
            for part in _decode_parts(piece.get("message", {})):
                has_called = has_called or isinstance(part, ToolCall)
                has_spoken = has_spoken or not isinstance(part, ThinkPart)
                yield part
            if piece.get("done"):
                if not has_spoken:
                    raise APIEmptyResponseError("Ollama answered nothing.")
                yield _decode_end(piece, has_called=has_called)
                return
    except TimeoutError as error:
        raise APITimeoutError("Ollama stopped answering.") from error
    except (aiohttp.ClientError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise APIConnectionError(f"The answer of Ollama cannot be read: {error}") from error
    raise APIConnectionError("The answer of Ollama broke off.")


def _decode_parts(message: Mapping[str, Any]) -> list[ModelItem]:
    parts: list[ModelItem] = []
    if message.get("thinking"):
        parts.append(ThinkPart(message["thinking"]))
    if message.get("content"):
        parts.append(TextPart(message["content"]))
    for call in message.get("tool_calls") or ():  # Ollama gives them no ids
        function = Function(call["function"]["name"], json.dumps(call["function"]["arguments"]))
        parts.append(ToolCall(uuid.uuid4().hex, function))
    return parts


def _decode_end(piece: Mapping[str, Any], *, has_called: bool) -> ResponseEnd:
    usage = TokenUsage(input_other=piece.get("prompt_eval_count", 0), output=piece.get("eval_count", 0))
    reason = "tool_calls" if has_called else _STOP_REASONS.get(piece.get("done_reason"), "unknown")
    return ResponseEnd(usage=usage, stop_reason=reason)


def _encode_message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message_text(message, "\n")}
    if message.tool_calls:
        encoded["tool_calls"] = [
            {"function": {"name": call.function.name, "arguments": _decode_arguments(call)}}
            for call in message.tool_calls
        ]
    return encoded


def _decode_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as an object, as Ollama wants them; a model may have written anything."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except ValueError:
        arguments = None
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"arguments": call.function.arguments}


def _encode_tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


async def main(name: str, prompt: str) -> None:
    async with open_agent(".", OllamaModel(name)) as agent:
        async for event in agent.prompt(prompt):
            if isinstance(event, TextPart):
                print(event.text, end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
