"""MCP servers as people configure them: entries, files, options, variables, secrets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import McpServer, McpSettings, Settings
from kimi.domain.errors import ConfigError, UsageError
from kimi.infrastructure.config.settings_files import load_settings
from kimi.infrastructure.mcp.config.config_document import ensure_server_entries, read_document, write_document
from kimi.infrastructure.mcp.config.server_config import merge_servers, parse_server, parse_servers
from kimi.infrastructure.mcp.config.variables import expand_server
from kimi.infrastructure.mcp.fastmcp_import import load_fastmcp


def settings(share: Path, environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    """What is configured below `share` and by these flags."""
    given_flags = Flags(work_dir=str(share), **flags)
    return load_settings(given_flags, {"KIMI_SHARE_DIR": str(share)} | (environ or {}))


def file_of(path: Path, servers: dict[str, Any]) -> str:
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def names(loaded: Settings) -> list[str]:
    return [server.name for server in loaded.mcp.servers]


# --- entries ---------------------------------------------------------------------------------------------------

URL = "https://mcp.example.test/mcp"

ENTRIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"command": "npx", "args": ["-y", "some"], "env": {"A": "b"}, "cwd": "."},
        {"transport": "stdio", "command": "npx", "args": ("-y", "some"), "env": {"A": "b"}, "cwd": "."},
    ),
    ({"command": "x"}, {"transport": "stdio", "args": (), "env": {}, "cwd": None, "enabled": True}),
    ({"command": "x", "transport": "stdio"}, {"transport": "stdio"}),
    ({"command": "x", "type": "stdio", "keep_alive": False}, {"transport": "stdio"}),
    ({"url": URL, "headers": {"X-Key": "k"}}, {"transport": "http", "url": URL, "headers": {"X-Key": "k"}}),
    ({"url": URL, "transport": "http", "auth": "oauth"}, {"transport": "http", "auth": "oauth"}),
    ({"url": URL, "transport": "streamable-http", "auth": "token"}, {"transport": "http", "auth": "token"}),
    ({"url": URL, "transport": "sse"}, {"transport": "sse"}),
    ({"url": URL, "type": "sse"}, {"transport": "sse"}),
    ({"url": URL, "type": "http", "transport": "sse"}, {"transport": "sse"}),
    ({"url": "https://h.test/sse"}, {"transport": "sse"}),
    ({"url": "https://h.test/a/sse/?b=c"}, {"transport": "sse"}),
    ({"url": "https://h.test/sse", "transport": "http"}, {"transport": "http"}),
    ({"url": "https://h.test/assets?x=/sse"}, {"transport": "http"}),
    ({"url": "https://sse"}, {"transport": "http"}),
    ({"url": "${BASE}/mcp"}, {"transport": "http"}),
    ({"url": URL, "timeout": 5000, "connect_timeout_ms": 7}, {"timeout_ms": 5000, "connect_timeout_ms": 7}),
    ({"url": URL, "sse_read_timeout": 90}, {"sse_read_timeout_s": 90.0}),
    ({"url": URL, "disabled": True}, {"enabled": False}),
    ({"url": URL, "disabled": False}, {"enabled": True}),
    ({"url": URL, "enabled": False}, {"enabled": False}),
    ({"url": URL, "enabled_tools": ["a*"]}, {"enabled_tools": ("a*",)}),
    ({"url": URL, "disabled_tools": ["b"]}, {"disabled_tools": ("b",), "enabled_tools": None}),
    ({"url": URL, "enabled_tools": []}, {"enabled_tools": ()}),
    ({"url": URL}, {"enabled_tools": None, "approval": "ask", "subagents": "none", "trust_annotations": False}),
    ({"url": URL, "required": True, "approval": "read_only_allow"}, {"required": True, "approval": "read_only_allow"}),
    ({"url": URL, "trust_annotations": True}, {"trust_annotations": True}),
    ({"url": URL, "subagents": "inherit"}, {"subagents": "inherit"}),
    ({"url": "${BASE}/sse"}, {"transport": "sse"}),
    ({"url": URL, "description": 1, "icon": [], "authentication": {}, "more": None}, {"transport": "http"}),
    ({"url": URL, "headers": None, "auth": None, "tools": {}}, {"headers": {}, "auth": None}),
]  # fmt: skip

BROKEN: list[tuple[Any, str]] = [
    ("npx", "must be an object"),
    ({}, "needs a 'command' (stdio) or a 'url'"),
    ({"url": 5}, "needs a 'command' (stdio) or a 'url'"),
    ({"command": "x", "url": URL}, "both 'command' and 'url'"),
    ({"url": URL, "transport": "stdio"}, "stdio goes with a 'command'"),
    ({"command": "x", "transport": "http"}, "stdio goes with a 'command'"),
    ({"url": URL, "transport": "carrier-pigeon"}, "must be one of stdio, http"),
    ({"url": URL, "transport": ["sse"]}, "must be one of stdio, http"),
    ({"url": "mcp.example.test"}, "begin with http:// or https://"),
    ({"command": "x", "args": "-y"}, "args: "),
    ({"command": "x", "env": {"PORT": 8080}}, "env.PORT: "),
    ({"url": URL, "timeout": "soon"}, "timeout: "),
    ({"url": URL, "approval": "never"}, "approval: "),
    ({"url": URL, "enabled": "perhaps"}, "enabled: "),
    ({"url": URL, "tools": {"a": {"name": "b"}}}, "'tools' is not supported; choose tools with 'enabled_tools'"),
    ({"url": URL, "include_tags": ["a"]}, "'include_tags' is not supported"),
    ({"url": URL, "exclude_tags": ["a"]}, "'exclude_tags' is not supported"),
    ({"command": ""}, "needs a 'command'"),
    ({"command": "x", "timeout": 0}, "timeout: must be greater than"),
    ({"command": "x", "args": "y"}, "args: must be a list."),
]


@pytest.mark.spec("T-116")
def test_every_key_of_an_entry_is_understood() -> None:
    for entry, expected in ENTRIES:
        server = parse_server("s", entry)
        assert server.config_error is None, (entry, server.config_error)
        assert {key: getattr(server, key) for key in expected} == expected, entry
    assert parse_servers({"a": {"command": "x"}, "b": {"url": URL}, "$schema": "y"}, "it") == [
        McpServer(name="a", command="x"),
        McpServer(name="b", url=URL, transport="http"),
    ]
    assert parse_servers({"mcpServers": {}}, "it") == parse_servers({}, "it") == []
    assert parse_servers({"mcpServers": {"a": {"command": "x"}}, "inputs": [1]}, "it")[0].command == "x"


def test_an_entry_becomes_a_transport() -> None:
    load_fastmcp()
    from fastmcp.client.transports import SSETransport, StreamableHttpTransport

    from kimi.infrastructure.mcp.transport.remote import create_transport

    stream = create_transport(parse_server("s", {"url": URL, "headers": {"X-Key": "k"}, "auth": "token"}))
    assert isinstance(stream, StreamableHttpTransport)
    assert (stream.url, stream.headers) == (URL, {"X-Key": "k"})
    assert stream.auth is not None
    assert next(stream.auth.sync_auth_flow(httpx2.Request("GET", URL))).headers["authorization"] == "Bearer token"
    events = create_transport(parse_server("s", {"url": URL, "type": "sse", "sse_read_timeout": 90}))
    assert isinstance(events, SSETransport)
    assert events.sse_read_timeout is not None
    assert events.sse_read_timeout.total_seconds() == 90


def test_invalid_entry_affects_only_its_server() -> None:
    for entry, reason in BROKEN:
        first, second = parse_servers({"mcpServers": {"bad": entry, "good": {"command": "x"}}}, "it")
        assert first.config_error is not None
        assert reason in first.config_error, first.config_error
        assert second.config_error is None
    assert not parse_server("s", {"url": "x", "disabled": True}).enabled
    assert parse_server("s", {"url": "x", "required": True}).required


KEYS = ["command", "url", "type", "transport", "args", "env", "headers", "auth", "enabled", "disabled", "tools"]
SCALARS = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner)))
def test_parser_accepts_any_entry_without_exception(entry: Any) -> None:
    server = parse_server("s", entry)
    assert server.config_error is not None or (server.command is None) != (server.url is None)


def test_a_reason_never_quotes_a_value() -> None:
    secret = "sk-very-secret"
    for entry in (
        {"command": "x", "env": {"A": [secret]}},
        {"url": URL, "headers": secret},
        {"url": URL, "auth": [secret]},
        {"url": secret},
        {"url": URL, "approval": secret},
    ):
        server = parse_server("s", entry)
        assert server.config_error is not None
        assert secret not in server.config_error


# --- files and options -----------------------------------------------------------------------------------------

ONE, OTHER = {"command": "one"}, {"command": "other"}


@pytest.mark.spec("T-118")
def test_a_named_file_replaces_the_default_one_and_texts_add_to_either(tmp_path: Path) -> None:
    file_of(tmp_path / "mcp.json", {"user": ONE, "both": ONE})
    named = file_of(tmp_path / "named.json", {"named": ONE, "both": ONE})
    second = file_of(tmp_path / "second.json", {"second": ONE})
    text = json.dumps({"mcpServers": {"text": ONE, "both": OTHER}})
    assert names(settings(tmp_path)) == ["user", "both"]
    assert names(settings(tmp_path, mcp_config_files=(named, second))) == ["named", "both", "second"]
    with_text = settings(tmp_path, mcp_configs=(text, '{"more": {"command": "x"}}'))
    assert names(with_text) == ["user", "both", "text", "more"]
    assert with_text.mcp.servers[1].command == "other"
    with_both = settings(tmp_path, mcp_config_files=(named,), mcp_configs=(text,))
    assert names(with_both) == ["named", "both", "text"]
    assert with_both.mcp.servers[1].command == "other"
    with pytest.raises(UsageError, match=r"^Invalid JSON: "):
        settings(tmp_path, mcp_configs=("{",))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UsageError, match=r"^Invalid JSON: .*bad\.json"):
        settings(tmp_path, mcp_config_files=(str(tmp_path / "bad.json"),))


@pytest.mark.parametrize("text", ["[]", "null", "5", '"x"', '{"mcpServers": []}', '{"mcpServers": 1}'])
def test_json_text_of_wrong_shape_ends_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^Invalid MCP config: .*--mcp-config"):
        settings(tmp_path, mcp_configs=(text,))
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(ConfigError, match=f"^Invalid MCP config: .*{tmp_path}"):
        settings(tmp_path)


def test_an_object_without_servers_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mcp.json").write_text('{"servers": {"a": {"command": "x"}}}')
    assert names(settings(tmp_path)) == []
    assert caplog.messages == [f"{tmp_path}/mcp.json has no 'mcpServers'; no MCP server is taken from it"]


def test_a_default_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{")
    with pytest.raises(UsageError, match=f"^Invalid JSON: .*{tmp_path}") as caught:
        settings(tmp_path)
    assert caught.value.hint is None
    (tmp_path / "mcp.json").write_bytes(b'"\xff"')
    with pytest.raises(ConfigError, match=f"Invalid MCP config: {tmp_path}.* is not UTF-8"):
        settings(tmp_path)
    (tmp_path / "mcp.json").unlink()
    (tmp_path / "mcp.json").mkdir()
    with pytest.raises(ConfigError, match=f"Cannot read the MCP config file {tmp_path}"):
        settings(tmp_path)
    with pytest.raises(ConfigError, match="/dev/zero: it has more than 4000000 characters"):
        settings(tmp_path, mcp_config_files=("/dev/zero",))


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_bytes(b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}')
    assert names(settings(tmp_path)) == ["a"]


def test_limits_come_from_the_configuration(tmp_path: Path) -> None:
    config = {
        "mcp": {
            "always_qualify": True,
            "client": {
                "tool_call_timeout_ms": 5,
                "connect_timeout_ms": 6,
                "first_turn_wait_ms": 0,
                "max_output_chars": 1000,
            },
        }
    }
    limits = {"tool_call_timeout_ms": 5, "connect_timeout_ms": 6, "first_turn_wait_ms": 0, "max_output_chars": 1000}
    assert settings(tmp_path, config=json.dumps(config)).mcp == McpSettings.model_validate(
        {"always_qualify": True, **limits}
    )
    assert settings(tmp_path, config="{}").mcp == McpSettings()
    for value in (0, -1):
        (tmp_path / "c.json").write_text(json.dumps({"mcp": {"client": {"tool_call_timeout_ms": value}}}))
        assert settings(tmp_path, config_file=str(tmp_path / "c.json")).mcp == McpSettings()
    with pytest.raises(UsageError, match=r"mcp\.client\.max_output_chars"):
        settings(tmp_path, config='{"mcp": {"client": {"max_output_chars": 1}}}')


def test_later_server_replaces_the_earlier_one_at_its_position() -> None:
    first, second = McpServer(name="a", command="1"), McpServer(name="b", command="2")
    later = McpServer(name="a", command="3")
    assert merge_servers([[first, second], [later]]) == (later, second)


# --- variables and secrets -------------------------------------------------------------------------------------


def test_variables_are_expanded_in_all_fields() -> None:
    server = McpServer(
        name="s",
        command="${BIN}/run",
        args=("--at", "${WHERE:-here}", "$HOME", "${not a name}"),
        env={"A": "${TOKEN}"},
        cwd="${BIN}",
        url="https://${HOST}/x",
        headers={"Authorization": "Bearer ${TOKEN}"},
        auth="${TOKEN}",
    )
    ready = expand_server(server, {"BIN": "/bin", "TOKEN": "t0k", "HOST": "h", "WHERE": ""})
    assert ready.command == "/bin/run"
    assert ready.args == ("--at", "here", "$HOME", "${not a name}")
    assert (ready.env, ready.headers) == ({"A": "t0k"}, {"Authorization": "Bearer t0k"})
    assert (ready.cwd, ready.url, ready.auth) == ("/bin", "https://h/x", "t0k")


@pytest.mark.parametrize("field", ["command", "cwd", "url", "auth"])
def test_a_missing_variable_is_named(field: str) -> None:
    server = McpServer.model_validate({"name": "docs", "command": "x", field: "a${MISSING}b"})
    with pytest.raises(ConfigError, match="'docs' needs the environment variable MISSING"):
        expand_server(server, {})
    assert getattr(expand_server(server, {"MISSING": ""}), field) == "ab"


@pytest.mark.spec("R-173")
def test_variables_that_servers_name_are_secret(tmp_path: Path) -> None:
    servers = {
        "a": {"command": "x", "args": ["--key", "${IN_ARGUMENT}"], "env": {"K": "${IN_ENV}", "PATH": "${PATH}:/opt"}},
        "b": {"url": "https://h.test/?key=${IN_URL}", "headers": {"Authorization": "Bearer ${IN_HEADER:-none}"}},
    }
    file_of(tmp_path / "mcp.json", servers)
    named = {"IN_ARGUMENT": "1", "IN_ENV": "2", "IN_URL": "3", "IN_HEADER": "4"}
    loaded = settings(tmp_path, {**named, "PATH": "/bin", "OTHER": "5"})
    assert loaded.secret_variables == set(named)


def test_secrets_of_servers_join_those_that_are_masked(tmp_path: Path) -> None:
    file_of(
        tmp_path / "mcp.json",
        {
            "a": {
                "command": "x",
                "env": {"KEY": "env-secret", "DEBUG": "1", "ARGS": "--level x", "REF": "${FROM_ENV}"},
            },
            "b": {
                "url": "https://me:url-password@h.test/mcp?api_key=query-secret&mode=fast-and-loose",
                "headers": {"Authorization": "Bearer header-secret"},
                "auth": "bearer-secret",
            },
            "c": {"url": URL, "auth": "oauth"},
            "d": {"url": URL, "auth": ""},
            "e": {"url": URL, "auth": "x"},
        },
    )
    loaded = settings(tmp_path, {"FROM_ENV": "value-of-variable"})
    assert loaded.secret_values >= {
        *("env-secret", "value-of-variable", "url-password", "query-secret"),
        *("Bearer header-secret", "header-secret", "bearer-secret"),
    }
    assert not loaded.secret_values & {"1", "x", "oauth", "fast-and-loose", ""}
    shown = repr(loaded)
    assert "env-secret" not in shown
    assert "header-secret" not in shown
    assert "bearer-secret" not in shown


# --- the file that commands change -----------------------------------------------------------------------------


def test_change_keeps_unknown_members(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp.json")
    before: dict[str, Any] = {"$schema": "x", "mcpServers": {"a": {"command": "ä", "icon": [1]}}, "z": None}
    Path(path).write_text(json.dumps(before))
    document = read_document(path)
    ensure_server_entries(document)["b"] = {"url": URL}
    write_document(path, document)
    assert json.loads(Path(path).read_text(encoding="utf-8")) == {
        **before,
        "mcpServers": {**before["mcpServers"], "b": {"url": URL}},
    }
    assert Path(path).read_text(encoding="utf-8").startswith('{\n  "$schema": "x",\n')
    assert "ä" in Path(path).read_text(encoding="utf-8")


def test_servers_at_the_root_move_below_their_key(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp.json")
    Path(path).write_text('{"a": {"command": "x"}, "note": "y"}')
    document = read_document(path)
    assert ensure_server_entries(document) == {"a": {"command": "x"}}
    assert document == {"note": "y", "mcpServers": {"a": {"command": "x"}}}
    assert ensure_server_entries(read_document(str(tmp_path / "none.json"))) == {}


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target, link = tmp_path / "dotfiles" / "mcp.json", tmp_path / "mcp.json"
    target.write_text("{}")
    link.symlink_to(target)
    write_document(str(link), {"mcpServers": {"a": ONE}})
    assert link.is_symlink()
    assert json.loads(target.read_text()) == {"mcpServers": {"a": ONE}}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_unwritable_file_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").mkdir()
    with pytest.raises(ConfigError, match=f"Cannot write the MCP config file {tmp_path}"):
        write_document(str(tmp_path / "mcp.json"), {})
    assert os.listdir(tmp_path) == ["mcp.json"]


def test_undecodable_arguments_are_preserved(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp.json")
    write_document(path, {"mcpServers": {"a": {"command": "caf\udce9"}}})
    assert ensure_server_entries(read_document(path))["a"]["command"] == "caf\udce9"
