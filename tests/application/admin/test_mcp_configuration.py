"""What the commands of `kimi mcp` decide, over a configuration and logins in memory (tools spec 4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kimi.application.admin.mcp_configuration import (
    McpCommandError,
    add_server,
    build_remote_entry,
    build_stdio_entry,
    find_login_server,
    find_remote_server,
    find_server,
    forget_login,
    list_servers,
    needs_login,
    remove_server,
    set_server_enabled,
)
from kimi.application.settings.settings import McpServer
from tests.support.mcp.configuration import MemoryMcpConfiguration, MemoryMcpLogins

REMOTE: dict[str, Any] = {"url": "https://h.test", "transport": "http"}
LOGIN: dict[str, Any] = {**REMOTE, "auth": "oauth"}
LOCAL: dict[str, Any] = {"command": "x"}


# --- entries ---------------------------------------------------------------------------------------------------


def test_stdio_entry_has_command_arguments_and_variables() -> None:
    assert build_stdio_entry(["x"], (), (), None) == {"command": "x", "args": []}
    assert build_stdio_entry(["x", "-y", "z"], ["A=b=c", "E="], (), None) == {
        "command": "x",
        "args": ["-y", "z"],
        "env": {"A": "b=c", "E": ""},
    }


def test_remote_entry_has_url_headers_and_login() -> None:
    assert build_remote_entry(["u"], "sse", (), (), None) == {"url": "u", "transport": "sse"}
    assert build_remote_entry(["u"], "http", (), [" X : a:b "], "oauth") == {
        "url": "u",
        "transport": "http",
        "headers": {"X": "a:b"},
        "auth": "oauth",
    }


@pytest.mark.parametrize(
    ("targets", "env", "headers", "auth", "message"),
    [
        ((), (), ("A:b",), None, "For stdio transport, provide the command"),
        (("x",), (), ("A:b",), "oauth", "--header is only valid for http transport."),
        (("x",), ("A",), (), "oauth", "--auth is only valid for http transport."),
        (("x",), ("A",), (), None, r"Invalid env format: A \(expected KEY=VALUE\)."),
        (("x",), (" =b",), (), None, "Invalid env format:  =b"),
    ],
)
def test_stdio_entry_refuses_options_of_other_transports(
    targets: tuple[str, ...], env: tuple[str, ...], headers: tuple[str, ...], auth: str | None, message: str
) -> None:
    with pytest.raises(McpCommandError, match=message):
        build_stdio_entry(targets, env, headers, auth)


@pytest.mark.parametrize(
    ("targets", "env", "headers", "message"),
    [
        ((), ("A=b",), (), "--env is only supported for stdio transport."),
        ((), (), (), "URL is required for http transport."),
        (("u", "v"), (), (), "Multiple targets provided."),
        (("u",), (), ("A=b",), r"Invalid header format: A=b \(expected KEY:VALUE\)."),
    ],
)
def test_remote_entry_refuses_variables_and_several_urls(
    targets: tuple[str, ...], env: tuple[str, ...], headers: tuple[str, ...], message: str
) -> None:
    with pytest.raises(McpCommandError, match=message):
        build_remote_entry(targets, "http", env, headers, None)


# --- changing --------------------------------------------------------------------------------------------------


def test_added_server_replaces_only_the_one_of_its_name() -> None:
    configuration = MemoryMcpConfiguration({"a": 5, "b": LOCAL})
    add_server(configuration, "a", REMOTE)
    assert configuration.entries == {"a": REMOTE, "b": LOCAL}


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [(" ", LOCAL, "Give the server a name."), ("a", {"error": "No url."}, "Nothing was added: No url.")],
)
def test_unusable_server_is_not_added(name: str, entry: dict[str, Any], message: str) -> None:
    configuration = MemoryMcpConfiguration({"a": LOCAL})
    with pytest.raises(McpCommandError, match=message):
        add_server(configuration, name, entry)
    assert configuration.entries == {"a": LOCAL}


def test_unusable_server_can_be_removed() -> None:
    configuration = MemoryMcpConfiguration({"a": None, "b": LOCAL})
    remove_server(configuration, "a")
    assert configuration.entries == {"b": LOCAL}


def test_switching_a_server_leaves_one_key_that_says_so() -> None:
    configuration = MemoryMcpConfiguration({"a": {**LOCAL, "disabled": True, "enabled": True}})
    set_server_enabled(configuration, "a", False)
    assert configuration.entries["a"] == {**LOCAL, "enabled": False}
    set_server_enabled(configuration, "a", True)
    assert configuration.entries["a"] == LOCAL


def test_entry_that_is_no_object_cannot_be_switched() -> None:
    configuration = MemoryMcpConfiguration({"a": 5})
    with pytest.raises(McpCommandError, match=r"The entry of MCP server 'a' is not an object; add it anew."):
        set_server_enabled(configuration, "a", True)
    assert configuration.entries == {"a": 5}


def test_unknown_server_is_named_and_nothing_is_written() -> None:
    configuration = MemoryMcpConfiguration({"a": LOCAL})
    for command in (
        lambda: remove_server(configuration, "nope"),
        lambda: set_server_enabled(configuration, "nope", True),
        lambda: find_server(configuration, "nope"),
        lambda: forget_login(configuration, "nope", MemoryMcpLogins()),
    ):
        with pytest.raises(McpCommandError, match=r"MCP server 'nope' not found."):
            command()
    assert configuration.entries == {"a": LOCAL}


# --- finding and logins ----------------------------------------------------------------------------------------


def test_list_has_servers_that_cannot_be_used() -> None:
    found = list(list_servers(MemoryMcpConfiguration({"a": LOCAL, "b": {"error": "Bad."}})))
    assert [(server.name, server.config_error) for server in found] == [("a", None), ("b", "Bad.")]


def test_remote_server_is_usable_and_has_a_url() -> None:
    configuration = MemoryMcpConfiguration({"local": LOCAL, "bad": {"error": "Bad."}, "remote": REMOTE})
    assert find_remote_server(configuration, "remote").url == "https://h.test"
    with pytest.raises(McpCommandError, match=r"MCP server 'local' is not a remote server."):
        find_remote_server(configuration, "local")
    with pytest.raises(McpCommandError, match=r"MCP server 'bad' cannot be used. Bad."):
        find_remote_server(configuration, "bad")


def test_only_servers_with_oauth_can_be_logged_in_at() -> None:
    configuration = MemoryMcpConfiguration({"token": {**REMOTE, "auth": "sk"}, "login": LOGIN})
    assert find_login_server(configuration, "login").auth == "oauth"
    with pytest.raises(McpCommandError, match=r"MCP server 'token' does not use OAuth. Add with --auth oauth."):
        find_login_server(configuration, "token")


def test_login_is_needed_until_there_is_one() -> None:
    server, logins = McpServer(name="a", **LOGIN), MemoryMcpLogins()
    assert needs_login(server, logins)
    logins.names.add("a")
    assert not needs_login(server, logins)
    assert not needs_login(McpServer(name="b", **REMOTE), logins)


def test_forgotten_login_is_gone() -> None:
    configuration, logins = MemoryMcpConfiguration({"a": LOGIN}), MemoryMcpLogins({"a", "b"})
    forget_login(configuration, "a", logins)
    assert logins.names == {"b"}
    logins.error = PermissionError(13, "Permission denied")
    with pytest.raises(McpCommandError, match=r"Cannot remove the OAuth tokens of 'a': Permission denied."):
        forget_login(configuration, "a", logins)
