"""Models that answer from scripts, for tests, examples and demonstrations without a network (runtime spec 3.8)."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import uuid4

from anyio import sleep
from anyio.lowlevel import checkpoint

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.domain.content.message import Message, ToolCall, ToolCallPart, message_text
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import ChatProviderError, ConfigError
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.models.answer_errors import make_empty_response_error
from kimi.infrastructure.models.offline.echo_dsl import EchoScript, parse_script

SCRIPTS_VARIABLE = "KIMI_SCRIPTED_ECHO_SCRIPTS"
TRACE_VARIABLE = "KIMI_SCRIPTED_ECHO_TRACE"

_log = logging.getLogger(__name__)

NextScript = Callable[[Sequence[Message]], EchoScript]
"""Returns the script for a call. Raises ChatProviderError when there is none or it is malformed."""


class ScriptedModel:
    """A `ChatModel` whose answers are scripts. `_echo` and `_scripted_echo` differ in the source of the scripts."""

    def __init__(self, name: str, next_script: NextScript, capabilities: frozenset[str], context_size: int) -> None:
        self.name = name
        self.capabilities = capabilities
        self.context_size = context_size
        self._next_script = next_script

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`. Every call uses the next script."""
        script = self._next_script(history)
        if script.error is not None:
            raise script.error
        async with aclosing(_stream_items(script)) as items:
            yield items


async def _stream_items(script: EchoScript) -> AsyncGenerator[ModelItem]:
    await (sleep(script.delay_s) if script.delay_s else checkpoint())
    for part in _assign_unique_ids(script.parts):
        yield part
    if not any(_is_visible(part) for part in script.parts):
        raise make_empty_response_error(has_thinking=any(isinstance(part, ThinkPart) for part in script.parts))
    called = any(isinstance(part, ToolCall) for part in script.parts)
    yield ResponseEnd(script.message_id, script.usage, "tool_calls" if called else "end")


def _is_visible(part: StreamPart) -> bool:
    if isinstance(part, TextPart):
        return bool(part.text.strip())
    return not isinstance(part, ThinkPart | ToolCallPart)


def _assign_unique_ids(parts: Sequence[StreamPart]) -> list[StreamPart]:
    """Return the parts with a unique id for every tool call, as from any provider (tools spec 1.6)."""
    seen: set[str] = set()
    result: list[StreamPart] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if not part.id or part.id in seen:
                part = replace(part, id=str(uuid4()))
            seen.add(part.id)
        result.append(part)
    return result


def make_echo_model(capabilities: frozenset[str], context_size: int) -> ScriptedModel:
    """Return the model of `_echo`: the text of the last message is the script."""
    return ScriptedModel("echo", _parse_last_message, capabilities, context_size)


def _parse_last_message(history: Sequence[Message]) -> EchoScript:
    if not history:
        raise ChatProviderError("EchoChatProvider requires at least one message in history.")
    if history[-1].role != "user":
        raise ChatProviderError("EchoChatProvider expects the last history message to be user.")
    return _require_parts(parse_script(message_text(history[-1], "\n")), "EchoChatProvider")


def _require_parts(script: EchoScript, provider: str) -> EchoScript:
    if not script.parts and script.error is None:
        raise ChatProviderError(f"{provider} DSL produced no streamable parts.")
    return script


class ScriptQueue:
    """Scripts that are used in order, one per call, including retries and compaction."""

    def __init__(self, scripts: Sequence[str], trace: bool) -> None:
        self._scripts = scripts
        self._trace = trace
        self._calls = 0

    def __call__(self, history: Sequence[Message]) -> EchoScript:
        """Return the next script. Raises ChatProviderError when none is left, or it is malformed."""
        turn = self._calls + 1
        if turn > len(self._scripts):
            raise ChatProviderError(f"ScriptedEchoChatProvider exhausted at turn {turn}.")
        self._calls = turn
        text = self._scripts[turn - 1]
        if self._trace:
            _log.info("SCRIPTED_ECHO TURN %d: %s", turn, json.dumps(text, ensure_ascii=False))
        return _require_parts(parse_script(text), "ScriptedEchoChatProvider")


def make_scripted_model(
    scripts: Sequence[str], trace: bool, capabilities: frozenset[str], context_size: int
) -> ScriptedModel:
    """Return the model of `_scripted_echo`: every call uses the next one of `scripts`."""
    return ScriptedModel("scripted_echo", ScriptQueue(scripts, trace), capabilities, context_size)


def is_traced(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks to log each script that is used."""
    return environ.get(TRACE_VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def load_scripts(environ: Mapping[str, str]) -> list[str]:
    """Return the scripts of the file that the environment names.

    Raises:
        ConfigError: no file is named, it cannot be read, or it contains no scripts.
    """
    named = environ.get(SCRIPTS_VARIABLE, "").strip()
    if not named:
        raise ConfigError(f"{SCRIPTS_VARIABLE} is required for _scripted_echo.")
    path = Path(named).expanduser()
    if not path.is_file():
        raise ConfigError(f"Scripted echo file not found: {path}")
    try:
        return parse_scripts(path.read_text("utf-8-sig", "replace"))
    except OSError as error:
        raise ConfigError(f"Scripted echo file cannot be read: {path}: {error.strerror}") from error


def parse_scripts(text: str) -> list[str]:
    """Return the scripts in a file: a JSON array of strings, else chunks separated by lines `---`.

    Raises:
        ConfigError: the JSON has another shape, or there is no chunk.
    """
    try:
        value: object = json.loads(text)
    except ValueError:
        return _split_chunks(text)
    items = cast(list[object], value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) for item in items):
        raise ConfigError("Scripted echo JSON must be an array of strings.")
    return cast(list[str], items)


def _split_chunks(text: str) -> list[str]:
    chunks = [chunk.strip() for chunk in text.replace("\r\n", "\n").split("\n---\n")]
    if scripts := [chunk for chunk in chunks if chunk]:
        return scripts
    raise ConfigError("Scripted echo file must be a JSON array of strings or a text file split by '\\n---\\n'.")
