"""Events with anything in any place: what is read of them is well formed, or refused as what a provider must not send.

A part with a field of another type would be stored with the session and break it later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any, TypeAlias, cast

import pytest

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.domain.content.message import ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ImagePart, TextPart, ThinkPart, VideoPart
from kimi.domain.errors import ChatProviderError
from kimi.infrastructure.models.anthropic.stream import AnthropicEventReader
from kimi.infrastructure.models.gemini.stream import GeminiEventReader
from kimi.infrastructure.models.openai.chat_stream import REASONING_CONTENT, ChatChunkReader
from kimi.infrastructure.models.openai.responses_stream import ResponsesEventReader
from kimi.infrastructure.models.streaming_request import EventReader
from tests.support.dialects import anthropic, chat, gemini, responses
from tests.support.dialects.script import Answer, Dialect

Path: TypeAlias = tuple[str | int, ...]

READERS: dict[str, tuple[Dialect, Callable[[], EventReader]]] = {
    "chat": (chat.DIALECT, lambda: ChatChunkReader(REASONING_CONTENT)),
    "responses": (responses.DIALECT, ResponsesEventReader),
    "anthropic": (anthropic.DIALECT, AnthropicEventReader),
    "gemini": (gemini.DIALECT, GeminiEventReader),
}
ANSWER = Answer("hm", "gAAAAsigned", "so", (("a", "Shell", '{"x":1}'), ("b", "Glob", "{}")))
ODD: tuple[Any, ...] = (None, 7, float("inf"), "x", [], {}, [1], {"a": 1})


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Where something stands in a JSON value, the value itself included."""
    yield path
    if isinstance(value, dict):
        for key, one in cast(dict[str, object], value).items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(cast(list[object], value)):
            yield from places(one, (*path, index))


def with_odd(event: Any, path: Path, odd: Any) -> Any:
    """`event` with something odd in one place."""
    if not path:
        return odd
    changed = deepcopy(event)
    around = changed
    for key in path[:-1]:
        around = around[key]
    around[path[-1]] = odd
    return changed


def read(reader: EventReader, events: list[Any]) -> list[ModelItem]:
    """The items of an answer, up to where it is refused."""
    items: list[ModelItem] = []
    with suppress(ChatProviderError):
        for event in events:
            items += reader.read(json.dumps(event).encode())
        items += reader.flush()
        items.append(reader.make_response_end())
    return items


def is_sound(item: ModelItem) -> bool:
    """Are the fields of what they have to be?"""
    match item:
        case TextPart(text=text):
            return type(text) is str
        case ThinkPart(think=think, encrypted=encrypted):
            return type(think) is str and type(encrypted) in (str, type(None))
        case ToolCall(id=call_id, function=function):
            return type(call_id) is str and type(function.name) is str and type(function.arguments) in (str, type(None))
        case ToolCallPart(arguments_part=piece):
            return type(piece) is str
        case ImagePart(image_url=medium) | AudioPart(audio_url=medium) | VideoPart(video_url=medium):
            return type(medium.url) is str
        case ResponseEnd(message_id=message_id, usage=usage):
            counts = [] if usage is None else [usage.input, usage.output]
            return type(message_id) in (str, type(None)) and all(type(count) is int for count in counts)


@pytest.mark.parametrize("kind", READERS)
def test_odd_events_yield_only_sound_items(kind: str) -> None:
    dialect, reader = READERS[kind]
    whole = dialect.events(ANSWER)
    for events in (whole, [*whole[:-1], dialect.stream_error("too busy")]):
        for at, event in enumerate(events):
            for path in places(event):
                for odd in ODD:
                    items = read(reader(), [*events[:at], with_odd(event, path, odd), *events[at + 1 :]])
                    assert all(map(is_sound, items)), (event, path, odd)


@pytest.mark.parametrize("kind", READERS)
def test_the_answer_itself_is_read_whole(kind: str) -> None:
    dialect, reader = READERS[kind]
    items = read(reader(), list(dialect.events(ANSWER)))
    assert isinstance(items[-1], ResponseEnd)
    assert all(is_sound(item) for item in items)
