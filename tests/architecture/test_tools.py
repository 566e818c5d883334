"""The built-in tools as the model sees them."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.content.message import JsonObject
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import create_session_container

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent / "tools.json"
CAPABLE = frozenset({"image_in", "video_in", "thinking"})


def app(tmp_path: Path) -> App:
    """The container of a process with a model that can do everything."""
    model = ModelSettings(provider_name="p", type="_echo", model="m", capabilities=CAPABLE)
    settings = Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path), model=model)
    return App(settings=providers.Object(settings), store=providers.Object(MemoryStore(str(tmp_path))))


async def session(of: App, session_id: str = "s1") -> SessionContainer:
    """The container of a conversation."""
    return create_session_container(of, await of.store().create(session_id))


@pytest.mark.spec("T-144")
async def test_tool_factories_are_synchronous(tmp_path: Path) -> None:
    tools = (await session(app(tmp_path))).tools
    for tool_id in tools.providers:
        assert not inspect.isawaitable(tools(tool_id)), tool_id


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
async def test_tool_schemas_match_the_snapshot(tmp_path: Path) -> None:
    """Run with `KIMI_UPDATE_GOLDEN=1` to write the snapshot anew, then review its difference."""
    current = dict(schemas((await session(app(tmp_path))).tools))
    text = json.dumps(current, indent=1, sort_keys=True) + "\n"
    if os.environ.get("KIMI_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    for name, schema in current.items():
        assert not {"title", "$ref", "$defs"} & set(keys(schema)), name
