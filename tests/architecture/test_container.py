"""The composition root: every provider resolves, every tool has its id, conversations share nothing by accident."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kimi.application.settings import ModelSettings, Settings
from kimi.domain.message import JsonObject
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.container import App, Session, new_session
from kimi.interfaces.injector import providers

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent / "tools.json"
CAPABLE = frozenset({"image_in", "video_in", "thinking"})


def app(tmp_path: Path) -> App:
    """The container of a process with a model that can do everything."""
    model = ModelSettings(provider_name="p", type="_echo", model="m", capabilities=CAPABLE)
    settings = Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path), model=model)
    return App(settings=providers.Object(settings), store=providers.Object(MemoryStore(str(tmp_path))))


async def session(of: App, session_id: str = "s1") -> Session:
    """The container of a conversation."""
    return new_session(of, await of.store().create(session_id))


def members(container: App | Session) -> dict[str, Any]:
    """The providers of a container, by name. Untyped: the library does not say what they give."""
    return cast("dict[str, Any]", container.providers)


async def test_every_provider_of_both_containers_resolves(tmp_path: Path) -> None:
    process = app(tmp_path)
    conversation = await session(process)
    process.check_dependencies()
    conversation.check_dependencies()
    for container in (process, conversation):
        for name, provider in members(container).items():
            if isinstance(provider, providers.Aggregate):
                continue  # gives one member at a time: see the tools below
            value = provider()
            assert not inspect.isawaitable(value), name


@pytest.mark.spec("T-144")
async def test_no_tool_is_made_asynchronously(tmp_path: Path) -> None:
    tools = (await session(app(tmp_path))).tools
    for tool_id in tools.providers:
        assert not inspect.isawaitable(tools(tool_id)), tool_id


async def test_two_conversations_share_only_what_belongs_to_the_process(tmp_path: Path) -> None:
    process = app(tmp_path)
    one, two = await session(process, "s1"), await session(process, "s2")
    shared = {name for name in members(process) if members(one).get(name) is not None}
    for name, provider in members(one).items():
        if name in shared or isinstance(provider, providers.Aggregate):
            continue
        first, second = provider(), members(two)[name]()
        if isinstance(first, (str, int, tuple, frozenset, type(None))):
            continue
        assert first is not second, name


def schemas(tools: providers.Aggregate[Any]) -> Iterator[tuple[str, JsonObject]]:
    """The name and parameters of every built-in tool, in the order of their names."""
    found = {tool.spec.name: tool.spec.parameters for tool_id in tools.providers if (tool := tools(tool_id))}
    yield from sorted(found.items())


def keys(value: object) -> Iterator[str]:
    """Every keyword of a schema; names of properties are not keywords."""
    if isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield key
            inner = cast("dict[str, object]", item).values() if key == "properties" else [item]
            for one in inner:
                yield from keys(one)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from keys(item)


@pytest.mark.spec("T-01")
async def test_what_the_model_may_pass_to_each_tool(tmp_path: Path) -> None:
    """Run with `KIMI_UPDATE_GOLDEN=1` to write the snapshot anew, then review its difference."""
    current = dict(schemas((await session(app(tmp_path))).tools))
    text = json.dumps(current, indent=1, sort_keys=True) + "\n"
    if os.environ.get("KIMI_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    for name, schema in current.items():
        assert not {"title", "$ref", "$defs"} & set(keys(schema)), name
