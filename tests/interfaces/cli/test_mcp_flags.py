"""The MCP servers of a command line: from its options to the settings of the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import McpServer, Settings
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.cli.app import run
from tests.support.program.command import kimi

KINDS = {"user": "from the default file", "named": "from a named file", "text": "from a text"}


def started(share: Path, *arguments: str) -> Settings:
    """Return the MCP settings of `kimi --wire` with these arguments."""
    found: list[Settings] = []

    def start(flags: Flags) -> int:
        found.append(load_settings(flags, {"KIMI_SHARE_DIR": str(share)}))
        return 0

    assert run(["--wire", *arguments], start) == 0
    return found[0]


def commands(settings: Settings) -> dict[str, str | None]:
    return {server.name: server.command for server in settings.mcp.servers}


def text(**entries: Any) -> str:
    return json.dumps({"mcpServers": entries})


def server(kind: str) -> dict[str, Any]:
    return {"command": KINDS[kind]}


@pytest.fixture
def named(tmp_path: Path) -> str:
    (tmp_path / "mcp.json").write_text(text(user=server("user"), shared=server("user")))
    path = tmp_path / "named.json"
    path.write_text(text(named=server("named"), shared=server("named")))
    return str(path)


@pytest.mark.spec("R-20")
def test_a_file_replaces_the_default_one_and_a_text_adds_to_whichever_is_used(tmp_path: Path, named: str) -> None:
    more = text(text=server("text"), shared=server("text"))
    default = {"user": KINDS["user"], "shared": KINDS["user"]}
    assert commands(started(tmp_path)) == default
    only_named = commands(started(tmp_path, "--mcp-config-file", named))
    assert only_named == {"named": KINDS["named"], "shared": KINDS["named"]}
    with_text = {"text": KINDS["text"], "shared": KINDS["text"]}
    assert commands(started(tmp_path, "--mcp-config", more)) == default | with_text
    assert commands(started(tmp_path, "--mcp-config-file", named, "--mcp-config", more)) == only_named | with_text
    assert commands(started(tmp_path, "--mcp-config", more, "--mcp-config-file", named)) == only_named | with_text
    assert commands(started(tmp_path, "--mcp-config", more, "--mcp-config", text(shared=server("user")))) == (
        default | with_text | {"shared": KINDS["user"]}
    )
    other = tmp_path / "other.json"
    other.write_text(text(shared=server("text")))
    both = started(tmp_path, "--mcp-config-file", named, "--mcp-config-file", str(other))
    assert commands(both) == only_named | {"shared": KINDS["text"]}


def test_missing_file_means_no_servers(tmp_path: Path) -> None:
    assert started(tmp_path).mcp.servers == ()
    assert started(tmp_path, "--mcp-config", "{}").mcp.servers == ()
    assert started(tmp_path, "--mcp-config", text(a=server("text"))).mcp.servers == (
        McpServer(name="a", command=KINDS["text"]),
    )


def test_a_named_file_is_closed_to_tools(tmp_path: Path, named: str) -> None:
    assert named in started(tmp_path, "--mcp-config-file", named).own_files


def test_a_default_file_that_is_not_json_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{")
    done = kimi("--wire", share=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert "Error Invalid JSON: " in done.message
    assert str(tmp_path / "mcp.json") in done.message
    (tmp_path / "mcp.json").write_text("[]")
    done = kimi("--wire", share=tmp_path)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Invalid MCP config: {tmp_path / 'mcp.json'} ")


def test_no_secret_of_a_server_is_written_anywhere(tmp_path: Path) -> None:
    servers = text(
        a={"command": "no-such-command", "env": {"KEY": "env-secret"}, "timeout": "env-secret"},
        b={"url": "ftp://u:url-secret@h.test", "headers": {"X": "header-secret"}, "auth": "token-secret"},
    )
    done = kimi("--wire", "--debug", "--mcp-config", servers, share=tmp_path)
    assert done.code == 0
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    for secret in ("env-secret", "url-secret", "header-secret", "token-secret"):
        assert not [shown for shown in (done.stdout, done.stderr, *written) if secret in shown]
