"""The model of the kit: chat completions as server-sent events on the loopback interface, as each scenario says."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from aiohttp import web

Json: TypeAlias = dict[str, Any]

MODEL_NAME: Final = "kit-model"
API_KEY: Final = "sk-kit-secret"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model; `pieces` are its arguments as they stream."""

    name: str
    pieces: tuple[str, ...]
    id: str


def tool_call(name: str, arguments: object, call_id: str, pieces: int = 2) -> Call:
    """Return a call with these arguments; a string is taken as it is."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    size = max(1, -(-len(text) // pieces))
    return Call(name, tuple(text[start : start + size] for start in range(0, len(text), size)), call_id)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: thinking, text in pieces, calls. With a `status` it is an error with the text as its message.

    `hold` ends the answer only once it is set, or the server has gone away. `input_tokens` None: no usage is told.
    """

    text: Sequence[str] = ()
    calls: Sequence[Call] = ()
    think: Sequence[str] = ()
    status: int = 200
    hold: asyncio.Event | None = None
    delay_s: float = 0
    finish: str | None = None
    input_tokens: int | None = 10
    drop: bool = False


def say(*pieces: str) -> Reply:
    """Return an answer of text."""
    return Reply(pieces)


def stall(*pieces: str) -> Reply:
    """Return an answer that begins with this text and never ends."""
    return Reply(pieces, hold=asyncio.Event())


def fail(status: int, message: str) -> Reply:
    """Return an error."""
    return Reply((message,), status=status)


def use(*calls: Call, text: str = "") -> Reply:
    """Return an answer of tool calls."""
    return Reply((text,) if text else (), calls)


@dataclass(slots=True)
class ModelServer:
    """Answers requests with the queued replies in order, then with a short text; keeps what it was asked."""

    replies: deque[Reply] = field(default_factory=deque[Reply])
    requests: list[Json] = field(default_factory=list[Json])
    base_url: str = ""
    choose: Callable[[Json], Reply | None] | None = None
    """When it returns a reply for a request, that one is sent instead of the next in the queue."""
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    def script(self, *replies: Reply) -> None:
        """Forget the old replies and requests, and answer with these."""
        self.replies.clear()
        self.requests.clear()
        self.replies.extend(replies)

    def release(self) -> None:
        """End the answers that are held."""
        self._released.set()
        self._released = asyncio.Event()

    async def start(self, port: int = 0) -> None:
        """Listen on the loopback interface."""
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        """Stop listening."""
        self.release()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def offered_tools(self) -> list[str]:
        """The names of the tools in the last request."""
        return [tool["function"]["name"] for tool in self.requests[-1].get("tools", ())] if self.requests else []

    def tool_results(self) -> dict[str, str]:
        """The results of tools in the last request, as text by call id."""
        messages: list[Json] = self.requests[-1]["messages"] if self.requests else []
        return {one["tool_call_id"]: read_text(one.get("content")) for one in messages if one.get("role") == "tool"}

    @property
    def last_result(self) -> str:
        """The text of the last tool result in the last request."""
        messages: list[Json] = self.requests[-1]["messages"] if self.requests else []
        texts = [read_text(one.get("content")) for one in messages if one.get("role") == "tool"]
        return texts[-1] if texts else ""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await _read_body(request)
        if body is None:
            error: Json = {"message": "The body is no chat completion request.", "type": "kit"}
            return web.json_response({"error": error}, status=400)
        self.requests.append(body)
        chosen = self.choose(body) if self.choose is not None else None
        reply = chosen or (self.replies.popleft() if self.replies else say("ok"))
        if reply.status != 200:
            error = {"error": {"message": "".join(reply.text) or "refused", "type": "kit"}}
            return web.json_response(error, status=reply.status)
        if not body.get("stream"):
            if reply.hold is not None:
                await _wait_for_any(reply.hold, self._released)
            return web.json_response(_whole_answer(reply))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):
            await response.prepare(request)
            await self._stream(response, reply)
            if reply.drop and request.transport is not None:
                request.transport.abort()
        return response

    async def _stream(self, response: web.StreamResponse, reply: Reply) -> None:
        for chunk in _chunks(reply):
            await _write(response, chunk)
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)
        if reply.hold is not None:
            await _wait_for_any(reply.hold, self._released)
        if reply.drop:
            return
        await _write(response, _chunk({}, finish_reason=_finish_reason(reply)))
        if reply.input_tokens is not None:
            await _write(response, {**_chunk({}), "choices": [], "usage": _usage(reply.input_tokens)})
        await response.write(b"data: [DONE]\n\n")


async def _read_body(request: web.Request) -> Json | None:
    """Return the body; None for one that is no request for a completion."""
    try:
        body: Any = json.loads(await request.text())
    except ValueError:
        return None
    value = cast("Json", body) if isinstance(body, dict) else {}
    return value if isinstance(value.get("messages"), list) else None


def read_text(content: Any) -> str:
    """Return the text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") for part in content)


def _chunks(reply: Reply) -> list[Json]:
    found = [_chunk({"role": "assistant", "content": ""})]
    found += [_chunk({"reasoning_content": piece}) for piece in reply.think]
    found += [_chunk({"content": piece}) for piece in reply.text]
    for index, call in enumerate(reply.calls):
        head = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        found.append(_chunk({"tool_calls": [head]}))
        found += [_chunk({"tool_calls": [{"index": index, "function": {"arguments": one}}]}) for one in call.pieces]
    return found


def _chunk(delta: Json, finish_reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "chat-kit", "object": "chat.completion.chunk", "created": 1, "model": MODEL_NAME, "choices": [choice]}


def _whole_answer(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": "".join(reply.text)}
    if reply.think:
        message["reasoning_content"] = "".join(reply.think)
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.pieces)}}
            for call in reply.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    head = {"id": "chat-kit", "object": "chat.completion", "created": 1, "model": MODEL_NAME, "choices": [choice]}
    return head if reply.input_tokens is None else head | {"usage": _usage(reply.input_tokens)}


def _finish_reason(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _usage(input_tokens: int) -> Json:
    return {"prompt_tokens": input_tokens, "completion_tokens": 5, "total_tokens": input_tokens + 5}


async def _wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


async def _write(response: web.StreamResponse, chunk: Json) -> None:
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
