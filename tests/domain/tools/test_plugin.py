"""The manifests of plugins, and the names of their tools (tools spec 3.18)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import pytest

from kimi.domain.content.message import JsonObject
from kimi.domain.tools.plugin import MAX_TOOLS, InstalledPlugins, PluginInvalid, UnusablePlugin, name_tools
from kimi.domain.tools.plugin import parse_manifest as parse

TOOL: dict[str, Any] = {"name": "greet", "description": "Greets", "command": ["python3", "x.py"]}


def manifest(**members: object) -> JsonObject:
    return {"name": "hello", "version": "1.0", "description": "Says hello", "tools": [TOOL]} | members


@pytest.mark.spec("T-147")
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "holds no JSON object"),
        ({}, "has no 'name'"),
        (manifest(name="../up"), "has no 'name'"),
        (manifest(name=".hidden"), "has no 'name'"),
        (manifest(name="a" * 65), "has no 'name'"),
        (manifest(name=7), "has no 'name'"),
        (manifest(tools={"greet": TOOL}), "are no list"),
    ],
)
def test_a_manifest_that_names_no_plugin_is_refused_with_a_reason(document: object, reason: str) -> None:
    with pytest.raises(PluginInvalid, match=re.escape(reason)):
        parse(document, "/p")


@pytest.mark.spec("T-147")
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("greet", "it is no JSON object"),
        ({"command": ["x"]}, "it has no 'name' of at most 128 characters"),
        (TOOL | {"name": "new\nline"}, "it has no 'name' of at most 128 characters"),
        (TOOL | {"command": "python3 x.py"}, "the 'command' of 'greet' is no list of words"),
        (TOOL | {"command": list[str]()}, "the 'command' of 'greet' is no list of words"),
        (TOOL | {"command": ["a\0b"]}, "the 'command' of 'greet' is no list of words"),
        (TOOL | {"parameters": [1]}, "the 'parameters' of 'greet' are no JSON object"),
        (TOOL, "a second one has the name 'greet'"),
    ],
)
def test_a_tool_that_cannot_be_used_leaves_the_others_usable(tool: object, reason: str) -> None:
    first = TOOL if tool is TOOL else TOOL | {"name": "first"}
    plugin = parse(manifest(tools=[first, tool]), "/p")
    assert [command.name for command in plugin.commands] == [first["name"]]
    assert plugin.faults == (f"tool 2 is left out, because {reason}",)


def test_only_so_many_tools_of_a_plugin_are_used() -> None:
    plugin = parse(manifest(tools=[TOOL | {"name": f"t{number}"} for number in range(MAX_TOOLS + 1)]), "/p")
    assert len(plugin.commands) == MAX_TOOLS
    assert plugin.faults == (f"of its {MAX_TOOLS + 1} tools only the first {MAX_TOOLS} are used",)


@pytest.mark.spec("R-301")
def test_values_that_a_plugin_wants_are_named_and_not_handed_over() -> None:
    plugin = parse(manifest(inject={"apiKey": "api_key", "url": "base_url"}, config_file="c.json"), "/p")
    [note] = plugin.notes
    assert "not handed over: write apiKey, url in c.json" in note


def test_keys_that_are_not_known_are_ignored_with_a_note() -> None:
    plugin = parse(manifest(homepage="x", author="y"), "/p")
    assert plugin.notes == ("the keys author, homepage of its plugin.json are not known",)
    assert len(plugin.commands) == 1


@pytest.mark.spec("T-148")
def test_names_of_tools_are_made_safe_and_qualified_where_they_collide() -> None:
    tools = [TOOL, TOOL | {"name": "Shell"}, TOOL | {"name": "say it/now"}, TOOL | {"name": "x" * 100}]
    first, second = parse(manifest(tools=tools), "/p"), parse(manifest(name="other.one"), "/q")
    names = name_tools([first, second], {"Shell"})
    assert list(names.values())[:3] == ["plugin__hello__greet", "plugin__hello__Shell", "say_it_now"]
    assert list(names.values())[4] == "plugin__other_one__greet"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())


def test_faults_are_one_line_for_each_plugin() -> None:
    directory = str(PurePosixPath("/plugins/torn"))
    installed = InstalledPlugins(
        (parse(manifest(tools=[TOOL, 1, 2]), "/p"),), (UnusablePlugin("torn", directory, "it has no plugin.json"),)
    )
    assert installed.list_faults() == [
        "The plugin 'torn' cannot be used: it has no plugin.json.",
        "The plugin 'hello' can be used in part only: tool 2 is left out, because it is no JSON object; "
        "tool 3 is left out, because it is no JSON object.",
    ]
