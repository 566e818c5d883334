"""The specs of all built-in tools, as the composition root makes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import anyio

from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.tools.tool import ToolSpec
from kimi.infrastructure.store.memory import MemoryStore
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import create_session_container

CAPABLE = frozenset({"image_in", "video_in", "thinking"})


@cache
def builtin_specs() -> dict[str, ToolSpec]:
    """Return the spec of every built-in tool by its name, for a model with all capabilities."""
    with ThreadPoolExecutor(1) as pool:  # the caller may run in an event loop
        return pool.submit(anyio.run, _load_specs).result()


async def _load_specs() -> dict[str, ToolSpec]:
    model = ModelSettings(provider_name="p", type="_echo", model="m", capabilities=CAPABLE)
    store = MemoryStore("/w")
    settings = Settings(share_dir="/w/share", work_dir="/w", model=model)
    app = App(settings=providers.Object(settings), store=providers.Object(store))
    tools = create_session_container(app, await store.create("s")).tools
    specs = [tools(tool_id).spec for tool_id in tools.providers]
    return {spec.name: spec for spec in specs}
