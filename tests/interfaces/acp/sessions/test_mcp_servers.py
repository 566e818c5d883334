"""MCP servers that a client sends with a session."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.application.settings.settings import McpServer
from kimi.infrastructure.mcp.config.variables import expand_server
from kimi.interfaces.acp.sessions.mcp_servers import InvalidMcpServer, parse_mcp_servers

STDIO = {"name": "fs", "command": "/bin/fs", "args": ["-v"], "env": [{"name": "A", "value": "1"}]}
HTTP = {"type": "http", "name": "web", "url": "https://a.b", "headers": [{"name": "X-Key", "value": "secret-value"}]}


def test_each_transport_is_converted() -> None:
    raw = [STDIO, HTTP, {**HTTP, "type": "sse", "name": "old", "headers": []}, {**STDIO, "type": "stdio", "name": "2"}]
    assert parse_mcp_servers(raw, "/work dir") == (
        McpServer(name="fs", command="/bin/fs", args=("-v",), env={"A": "1"}, cwd="/work dir", transport="stdio"),
        McpServer(name="web", url="https://a.b", headers={"X-Key": "secret-value"}, transport="http"),
        McpServer(name="old", url="https://a.b", transport="sse"),
        McpServer(name="2", command="/bin/fs", args=("-v",), env={"A": "1"}, cwd="/work dir", transport="stdio"),
    )


def test_variables_are_not_expanded_in_client_servers() -> None:
    value = "${SECRET} ${SECRET:-x} $SECRET ${"
    entry = {"name": "a", "command": value, "args": [value], "env": [{"name": "A", "value": value}]}
    remote = {**HTTP, "url": value, "headers": [{"name": "A", "value": value}]}
    local, web = (expand_server(server, {"SECRET": "k"}) for server in parse_mcp_servers([entry, remote], value))
    assert (local.command, local.args, local.env, local.cwd) == (value, (value,), {"A": value}, value)
    assert (web.url, web.headers) == (value, {"A": value})


@pytest.mark.parametrize("raw", [None, []])
def test_missing_or_empty_list_has_no_servers(raw: Any) -> None:
    assert parse_mcp_servers(raw, "/") == ()


def test_last_entry_of_a_name_wins() -> None:
    pairs = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    found = parse_mcp_servers([STDIO, HTTP, {**STDIO, "command": "new", "env": pairs}], "/")
    assert [server.name for server in found] == ["fs", "web"]
    assert (found[0].command, found[0].env) == ("new", {"A": "2"})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"a": {}}, "mcpServers: must be a list"),
        (["fs"], r"mcpServers\[0\]: must be an object"),
        ([STDIO, {"command": "x"}], r"mcpServers\[1\]\.name"),
        ([{**STDIO, "name": " "}], r"mcpServers\[0\]\.name"),
        ([{key: value for key, value in STDIO.items() if key != "env"}], r"\(fs\)\.env: must be a list"),
        ([{key: value for key, value in STDIO.items() if key != "args"}], r"\(fs\)\.args"),
        ([{**STDIO, "args": [1]}], r"\(fs\)\.args"),
        ([{**STDIO, "command": ""}], r"\(fs\)\.command"),
        ([{**STDIO, "env": [{"name": "A"}]}], r"\(fs\)\.env\[0\]: must have name and value"),
        ([{**STDIO, "env": ["A=1"]}], r"\(fs\)\.env\[0\]"),
        ([{**HTTP, "url": None}], r"\(web\)\.url"),
        ([{**HTTP, "headers": {"X-Key": "secret-value"}}], r"\(web\)\.headers"),
        ([{**HTTP, "headers": [{"name": "X-Key", "value": 5}]}], r"\(web\)\.headers\[0\]"),
        ([{**HTTP, "type": "acp"}], r"\(web\): the transport 'acp' is not supported"),
        ([{**HTTP, "type": "carrier-pigeon"}], r"\(web\): the transport 'carrier-pigeon'"),
    ],
)
def test_unusable_entry_is_named(raw: Any, reason: str) -> None:
    with pytest.raises(InvalidMcpServer, match=reason) as caught:
        parse_mcp_servers(raw, "/")
    assert "secret-value" not in str(caught.value)
