"""A provider that refuses a history whose tool calls and results do not match, as strict APIs do."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import ProviderServer, Recorded, Reply, error_reply

Json = dict[str, Any]


@contextmanager
def strict_provider(*replies: Reply) -> Generator[ProviderServer, None, None]:
    """Run a provider that sends these replies in order and repeats the last one; see `strictly`."""

    def next_reply(_: Recorded) -> Reply:
        return server.replies.popleft() if len(server.replies) > 1 else server.replies[0]

    with loopback(*replies) as server:
        server.choose = strictly(next_reply)
        yield server


def strictly(choose: Callable[[Recorded], Reply]) -> Callable[[Recorded], Reply]:
    """Return `choose` with status 400 for a history that strict APIs refuse."""

    def reply(request: Recorded) -> Reply:
        fault = fault_of(request.json["messages"])
        return choose(request) if fault is None else error_reply(400, fault)

    return reply


def fault_of(messages: list[Json]) -> str | None:
    """Return why a strict API refuses this history: a call without an answer, or an answer without a call."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"tool message without a call: {message['tool_call_id']}"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"tool calls without an answer: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        if len(set(waiting)) < len(waiting):
            return f"two calls with one id: {waiting}"
        if message["role"] == "assistant" and not waiting and not message.get("content"):
            return "an assistant message that says nothing"
    return f"tool calls without an answer: {waiting}" if waiting else None


def sent(server: ProviderServer, index: int = -1) -> list[Json]:
    """Return the messages of a request without the system prompt."""
    return [message for message in server.requests[index].json["messages"] if message["role"] != "system"]


def sent_system(server: ProviderServer, index: int = -1) -> str:
    """Return the system prompt of a request."""
    first = server.requests[index].json["messages"][0]
    assert first["role"] == "system"
    return text_of(first)


def text_of(message: Json) -> str:
    """Return the text of a message whose content is a string or parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)
