"""The tools of plugins beside those of others (tools spec 1.2, 3.18)."""

from __future__ import annotations

import anyio.lowlevel
import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.toolset.toolset import Toolset
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import TextPart
from kimi.domain.tools.tool import ToolReturnValue, tool_ok
from tests.support.fakes import FakeTool
from tests.support.mcp.fake_source import Elicit, FakeServer, FakeToolSource
from tests.support.mcp.talk import says, talking

pytestmark = pytest.mark.anyio


async def done(arguments: JsonObject, elicit: Elicit) -> ToolReturnValue:
    await anyio.lowlevel.checkpoint()
    return tool_ok((TextPart("done"),))


def names(toolset: Toolset) -> list[str]:
    return [spec.name for spec in toolset.visible_specs()]


async def conversation_with_server(tool: str) -> Conversation:
    source = FakeToolSource({"there": FakeServer({tool: done})})
    conversation, _ = await talking(source, [says()], tools=[FakeTool("Here")])
    source.start()
    await source.wait_for_first_connect()
    return conversation


@pytest.mark.spec("T-148")
async def test_a_server_does_not_get_the_name_of_a_plugins_tool() -> None:
    toolset = (await conversation_with_server("greet")).toolset
    plugin_tool = FakeTool("greet")
    toolset.use_plugins([plugin_tool])
    assert names(toolset) == ["Here", "greet", "mcp__there__greet"]
    assert toolset.find("greet") is plugin_tool


@pytest.mark.spec("T-148")
def test_a_tool_of_the_client_takes_the_place_of_a_plugins_tool() -> None:
    toolset = Toolset({"a:Here": FakeTool("Here")}.__getitem__, ["a:Here"])
    toolset.use_plugins([FakeTool("greet"), FakeTool("wave")], ["a fault"])
    external = FakeTool("greet")
    assert toolset.add_external(external) is None
    assert names(toolset) == ["Here", "greet", "wave"]
    assert toolset.find("greet") is external
    assert toolset.plugin_faults == ("a fault",)
    assert toolset.reserved_names() >= {"greet", "wave", "Here"}
