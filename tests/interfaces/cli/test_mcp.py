"""`kimi mcp` (tools spec 4.5, runtime spec 1.6). Commands that only read or write files run in this process."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kimi.interfaces.cli.app import run
from tests.support.mcp.http_server import mcp_site
from tests.support.program.command import Finished, kimi

STDIO_SERVER = """
import json, sys
TOOLS = [
    {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}},
    {"name": "long", "description": "x" * 60, "inputSchema": {"type": "object"}},
    {"name": "mute", "inputSchema": {"type": "object"}},
]
print("noise of the server", file=sys.stderr)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": TOOLS}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""

BROWSER = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1]).read()
except urllib.error.HTTPError:
    pass
"""
"""A browser whose user is logged in everywhere, so that it follows every redirect."""

Mcp = Callable[..., Finished]


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "share"
    monkeypatch.setenv("KIMI_SHARE_DIR", str(directory))
    return directory


@pytest.fixture
def mcp(share: Path, capfd: pytest.CaptureFixture[str]) -> Mcp:
    """Run `kimi mcp` in this process."""

    def command(*arguments: str) -> Finished:
        code = run(["mcp", *arguments])
        captured = capfd.readouterr()
        return Finished(code, captured.out, captured.err)

    return command


def servers(share: Path) -> dict[str, Any]:
    return json.loads((share / "mcp.json").read_text(encoding="utf-8"))["mcpServers"]


def write_servers(share: Path, entries: dict[str, Any]) -> None:
    share.mkdir(exist_ok=True)
    (share / "mcp.json").write_text(json.dumps({"mcpServers": entries}))


def stdio_server(tmp_path: Path) -> list[str]:
    script = tmp_path / "server.py"
    script.write_text(STDIO_SERVER)
    return [sys.executable, str(script)]


def browser(tmp_path: Path) -> dict[str, str]:
    """Return the variables with which a program opens the browser above."""
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    return {"BROWSER": f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} %s &"}


# --- add -------------------------------------------------------------------------------------------------------

STORED: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("n", "--", "npx", "-y", "some"), {"command": "npx", "args": ["-y", "some"]}),
    (("n", "some"), {"command": "some", "args": []}),
    (
        ("--env", "A=b", "-e", "C=d=e", "-e", "F=", "n", "--", "some", "-e", "x"),
        {"command": "some", "args": ["-e", "x"], "env": {"A": "b", "C": "d=e", "F": ""}},
    ),
    (("--transport", "stdio", "n", "--", "x"), {"command": "x", "args": []}),
    (("-t", "http", "n", "https://h.test/mcp"), {"url": "https://h.test/mcp", "transport": "http"}),
    (
        ("n", "https://h.test", "-t", "http", "--header", " X-Key : a:b ", "-H", "Y:z", "--auth", "oauth"),
        {"url": "https://h.test", "transport": "http", "headers": {"X-Key": "a:b", "Y": "z"}, "auth": "oauth"},
    ),
    (("-t", "http", "n", "${HOST}/mcp"), {"url": "${HOST}/mcp", "transport": "http"}),
    (("-t", "sse", "-a", "x", "n", "https://h.test"), {"url": "https://h.test", "transport": "sse", "auth": "x"}),
]  # fmt: skip

NO_COMMAND = "For stdio transport, provide the command to start the MCP server after `--`."

MISUSES: list[tuple[tuple[str, ...], str]] = [
    (("add", "n"), NO_COMMAND),
    (("add", "n", "--"), NO_COMMAND),
    (("add", "-H", "A:b", "n", "--", "x"), "--header is only valid for http transport."),
    (("add", "-a", "oauth", "n", "--", "x"), "--auth is only valid for http transport."),
    (("add", "-e", "A", "n", "--", "x"), "Invalid env format: A (expected KEY=VALUE)."),
    (("add", "-e", "=b", "n", "--", "x"), "Invalid env format: =b (expected KEY=VALUE)."),
    (("add", "-t", "http", "-e", "A=b", "n", "http://h"), "--env is only supported for stdio transport."),
    (("add", "-t", "http", "n"), "URL is required for http transport."),
    (
        ("add", "-t", "http", "n", "http://h", "http://i"),
        "Multiple targets provided. Supply a single URL for http transport.",
    ),
    (("add", "-t", "http", "-H", "A", "n", "http://h"), "Invalid header format: A (expected KEY:VALUE)."),
    (("add", "-t", "http", "n", "h/mcp"), "Nothing was added: 'url' must begin with http:// or https://."),
    (("add", " ", "--", "x"), "Give the server a name."),
]

UNKNOWN = "MCP server 'nope' not found."


@pytest.mark.spec("R-15")
def test_add_stores_documented_entries_and_reports_every_misuse(mcp: Mcp, share: Path) -> None:
    file = share / "mcp.json"
    for arguments, entry in STORED:
        done = mcp("add", *arguments)
        assert done == Finished(0, f"Added MCP server 'n' to {file}.\n", ""), arguments
        assert servers(share) == {"n": entry}
    assert file.read_text().startswith('{\n  "mcpServers": {\n    "n": {\n      "url"')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    for arguments, message in MISUSES:
        assert mcp(*arguments) == Finished(1, "", f"{message}\n"), arguments
    assert file.read_bytes() == before
    assert mcp("add", "-t", "pigeon", "n", "x").code == 2


def test_concurrent_commands_lose_nothing(share: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(kimi, "mcp", "add", name, "x", share=share) for name in "abcd"]
    assert [finished.result().stderr for finished in done] == [""] * 4
    assert sorted(servers(share)) == ["a", "b", "c", "d"]
    assert sorted(path.name for path in share.iterdir()) == ["mcp.json"]


# --- list, get, remove, enable, disable ------------------------------------------------------------------------

SEVERAL: dict[str, Any] = {
    "tool": {"command": "npx", "args": ["-y", "some"], "env": {"KEY": "env-secret"}},
    "docs": {"url": "https://u:url-secret@h.test/mcp?api_key=query-secret", "headers": {"X": "header-secret"}},
    "old": {"url": "https://h.test/sse", "enabled": False},
    "login": {"url": "https://h.test/mcp", "auth": "oauth"},
    "token": {"url": "https://h.test/mcp", "auth": "token-secret", "password": "unknown-secret"},
    "bad": {"command": "x", "args": "y"},
}
SECRETS = ("env-secret", "url-secret", "query-secret", "header-secret", "token-secret", "unknown-secret")

WANTED = " [authorization required - run: kimi mcp auth login]"


def log_in(share: Path, url: str) -> None:
    """Store a login as the library names and writes it."""
    import hashlib

    digest = hashlib.sha256(f"{url}/tokens".encode()).hexdigest()[:8]
    directory = share / "mcp-oauth" / "S_mcp_oauth_token-3a009b34"
    directory.mkdir(parents=True)
    (directory / f"S_x-{digest}.json").write_text('{"value": {"access_token": "a"}}')


@pytest.mark.spec("R-16")
def test_list_shows_every_server_and_missing_logins(mcp: Mcp, share: Path) -> None:
    head = f"MCP config file: {share / 'mcp.json'}\n"
    assert mcp("list") == Finished(0, f"{head}No MCP servers configured.\n", "")
    assert json.loads(mcp("list", "--json").stdout) == {"path": str(share / "mcp.json"), "servers": []}
    write_servers(share, SEVERAL)
    done = mcp("list")
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        head.strip(),
        "  tool (stdio): npx -y some",
        "  docs (http): https://u:***@h.test/mcp?api_key=***",
        "  old (sse): https://h.test/sse [disabled]",
        f"  login (http): https://h.test/mcp{WANTED}",
        "  token (http): https://h.test/mcp",
        "  bad [cannot be used: args: must be a list.]",
    ]
    log_in(share, "https://h.test/mcp")
    assert "  login (http): https://h.test/mcp\n" in mcp("list").stdout


def test_list_prints_json(mcp: Mcp, share: Path) -> None:
    write_servers(share, SEVERAL)
    found = {server.pop("name"): server for server in json.loads(mcp("list", "--json").stdout)["servers"]}
    common = {"enabled": True, "authorization_required": False}
    assert found["tool"] == {"transport": "stdio", "command": "npx", "args": ["-y", "some"], **common}
    assert found["old"] == {"transport": "sse", "url": "https://h.test/sse", **common, "enabled": False}
    assert found["login"]["authorization_required"]
    assert found["bad"] == {"enabled": True, "error": "args: must be a list."}


def test_no_command_shows_a_secret(mcp: Mcp, share: Path) -> None:
    write_servers(share, SEVERAL)
    shown = mcp("list").stdout + mcp("list", "--json").stdout
    for name in SEVERAL:
        done = mcp("get", name)
        assert done.code == 0
        shown += done.stdout
    assert not [secret for secret in SECRETS if secret in shown]
    assert json.loads(mcp("get", "tool").stdout) == {
        "command": "npx",
        "args": ["-y", "some"],
        "env": {"KEY": "***"},
    }
    write_servers(share, {"a": {"url": "https://h", "headers": {"X": "${TOKEN}", "Y": "Bearer ${T}"}, "auth": "oauth"}})
    assert json.loads(mcp("get", "a").stdout) == {
        "url": "https://h",
        "headers": {"X": "${TOKEN}", "Y": "***"},
        "auth": "oauth",
    }


def test_control_characters_do_not_reach_the_terminal(mcp: Mcp, share: Path) -> None:
    write_servers(share, {"a\x1b[2J": {"command": "x\x1b]0;title\x07"}})
    assert "\x1b" not in mcp("list").stdout
    assert "\\x1b]0;title\\x07" in mcp("list").stdout


def test_a_server_can_be_switched_off_and_on(mcp: Mcp, share: Path) -> None:
    file = share / "mcp.json"
    write_servers(share, {"a": {"command": "x", "disabled": True, "icon": 1}, "b": 5})
    assert mcp("enable", "a") == Finished(0, f"Enabled MCP server 'a' in {file}.\n", "")
    assert servers(share)["a"] == {"command": "x", "icon": 1}
    assert mcp("disable", "a") == Finished(0, f"Disabled MCP server 'a' in {file}.\n", "")
    assert servers(share)["a"] == {"command": "x", "icon": 1, "enabled": False}
    assert mcp("disable", "b").code == 1
    for command in ("enable", "disable", "get"):
        assert mcp(command, "nope") == Finished(1, "", f"{UNKNOWN}\n")


@pytest.mark.spec("R-17")
def test_an_unknown_name_is_named(mcp: Mcp, share: Path) -> None:
    for entries in (None, {}, {"other": {"command": "x"}}):
        if entries is not None:
            write_servers(share, entries)
        for command in ("remove", "auth", "reset-auth", "test"):
            assert mcp(command, "nope") == Finished(1, "", f"{UNKNOWN}\n")


def test_invalid_entry_can_be_listed_and_removed(mcp: Mcp, share: Path) -> None:
    write_servers(share, {"empty": None})
    assert "empty [cannot be used: The entry must be an object.]" in mcp("list").stdout
    assert mcp("get", "empty").code == 0
    assert "is not an object" in mcp("enable", "empty").stderr
    assert mcp("remove", "empty").code == 0
    assert mcp("list").stdout.endswith("No MCP servers configured.\n")


# --- a file that cannot be used --------------------------------------------------------------------------------


@pytest.mark.spec("R-19")
def test_a_malformed_file_ends_every_command_with_its_name(mcp: Mcp, share: Path) -> None:
    share.mkdir()
    file = share / "mcp.json"
    commands = [
        ("list",), ("add", "n", "x"), ("remove", "n"), ("get", "n"), ("enable", "n"), ("disable", "n"), ("test", "n"),
        ("auth", "n"), ("reset-auth", "n"),
    ]  # fmt: skip
    for content in (b"{", b"", b"[]", b'{"mcpServers": []}', b'"\xff"'):
        file.write_bytes(content)
        for command in commands:
            done = mcp(*command)
            assert (done.code, done.stdout) == (2, "")
            assert str(file) in done.message
            assert "╭─ Error ─" in done.stderr
        assert file.read_bytes() == content


def test_a_file_that_cannot_be_written_is_named(mcp: Mcp, share: Path) -> None:
    share.write_text("")
    done = mcp("add", "n", "x")
    assert done.code in (1, 2)
    assert str(share / "mcp.json") in done.message


# --- connections: real processes -------------------------------------------------------------------------------


@pytest.mark.spec("R-18")
def test_server_connection_is_tested(mcp: Mcp, share: Path, tmp_path: Path) -> None:
    mcp("add", "good", "--", *stdio_server(tmp_path))
    mcp("add", "bad", "-e", "KEY=env-secret-1", "--", sys.executable, "-c", "exit(1)", "env-secret-1")
    done = kimi("mcp", "test", "good", share=share)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Testing connection to 'good'...",
        "✓ Connected to 'good'",
        "  Available tools: 3",
        "  Tools:",
        "    - greet: Greets.",
        f"    - long: {'x' * 49}…",
        "    - mute: ",
    ]
    done = kimi("mcp", "test", "bad", share=share)
    assert (done.code, done.stdout) == (1, "Testing connection to 'bad'...\n")
    assert done.stderr.startswith("✗ Connection failed: MCPError: ")
    assert done.stderr.count("\n") == 1
    log = (share / "logs" / "kimi.log").read_text()
    assert "env-secret-1" not in done.stderr + log
    done = kimi("mcp", "test", "good", "--json", share=share)
    assert (done.code, done.stderr) == (0, "")
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["greet", "long", "mute"]


def test_failed_connection_test_has_a_reason(mcp: Mcp, share: Path) -> None:
    entries = {
        "variable": (
            {"command": "x", "args": ["${MISSING_1}"]},
            "ConfigError: MCP server 'variable' needs the environ",
        ),
        "broken": ({"command": "x", "args": "y"}, "ConfigError: The entry of 'broken' cannot be used. args: "),
        "login": (SEVERAL["login"], "McpUnauthorized: Authorization is required; run: kimi mcp auth login"),
    }
    write_servers(share, {name: entry for name, (entry, _) in entries.items()})
    for name, (_, reason) in entries.items():
        done = kimi("mcp", "test", "--json", name, share=share)
        assert (done.code, done.stderr) == (1, "")
        outcome = json.loads(done.stdout)
        assert (outcome["name"], outcome["ok"]) == (name, False)
        assert outcome["error"].startswith(reason)


def test_the_project_does_not_configure_the_library(mcp: Mcp, share: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FASTMCP_LOG_LEVEL=nonsense\n")
    mcp("add", "good", "--", *stdio_server(tmp_path))
    done = kimi("mcp", "test", "good", share=share, cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.spec("T-138")
def test_commands_print_their_documented_texts(mcp: Mcp, share: Path, tmp_path: Path) -> None:
    file = share / "mcp.json"
    with mcp_site() as site:
        assert mcp("list").stdout == f"MCP config file: {file}\nNo MCP servers configured.\n"
        for name, url in (("linear", site.url), ("gone", f"{site.base}/nowhere")):
            done = mcp("add", "-t", "http", "-a", "oauth", name, url)
            assert done == Finished(0, f"Added MCP server '{name}' to {file}.\n", "")
        mcp("add", "-t", "http", "open", site.url)
        mcp("add", "tool", "--", "cmd", "arg")
        lines = mcp("list").stdout.splitlines()
        assert lines[1] == f"  linear (http): {site.url} [authorization required - run: kimi mcp auth linear]"
        assert lines[3:] == [f"  open (http): {site.url}", "  tool (stdio): cmd arg"]

        done = kimi("mcp", "auth", "linear", share=share, variables=browser(tmp_path))
        assert done.code == 0, done.stderr
        assert done.stdout.splitlines() == [
            "Authorizing with 'linear'...",
            "A browser window will open for authorization.",
            "Successfully authorized with 'linear'.",
            "Available tools: 1",
        ]
        assert mcp("list").stdout.splitlines()[1] == f"  linear (http): {site.url}"
        asked = len(site.asked)
        done = kimi("mcp", "test", "linear", share=share)
        assert done.stdout.splitlines() == [
            "Testing connection to 'linear'...",
            "✓ Connected to 'linear'",
            "  Available tools: 1",
            "  Tools:",
            "    - greet: Greets.",
        ]
        assert not [path for path in site.asked[asked:] if path != "POST /mcp" and path != "GET /mcp"]
        done = mcp("reset-auth", "linear")
        assert done == Finished(0, "OAuth tokens cleared for 'linear'.\n", "")
        assert "authorization required" in mcp("list").stdout.splitlines()[1]

        site.deny = True
        done = kimi("mcp", "auth", "linear", share=share, variables=browser(tmp_path))
        assert done.code == 1
        assert done.stdout.splitlines()[-1] == "A browser window will open for authorization."
        assert done.stderr.splitlines()[-1].startswith("Authorization failed: RuntimeError: ")
        done = kimi("mcp", "test", "linear", share=share)
        assert (done.code, done.stdout) == (1, "Testing connection to 'linear'...\n")
        assert done.stderr.startswith("✗ Connection failed: McpUnauthorized: ")

    assert mcp("auth", "tool") == Finished(1, "", "MCP server 'tool' is not a remote server.\n")
    assert mcp("reset-auth", "tool") == Finished(1, "", "MCP server 'tool' is not a remote server.\n")
    refusal = "MCP server 'open' does not use OAuth. Add with --auth oauth.\n"
    assert mcp("auth", "open") == Finished(1, "", refusal)
    for arguments, message in MISUSES:
        assert mcp(*arguments) == Finished(1, "", f"{message}\n")
    for command in ("remove", "auth", "reset-auth", "test"):
        assert mcp(command, "nope") == Finished(1, "", f"{UNKNOWN}\n")
    assert mcp("remove", "tool") == Finished(0, f"Removed MCP server 'tool' from {file}.\n", "")
    assert "tool" not in servers(share)
    tokens = [path.read_text() for path in (share / "logs").iterdir()]
    assert not [text for text in tokens if "access-" in text or "refresh-" in text]


def test_repeated_login_reuses_the_registered_redirect_address(mcp: Mcp, share: Path, tmp_path: Path) -> None:
    with mcp_site() as site:
        mcp("add", "-t", "http", "-a", "oauth", "linear", site.url)
        for _ in range(2):
            site.access, site.refresh = set(), set()
            for path in share.glob("mcp-oauth/S_mcp_oauth_token-*/*.json"):
                path.unlink()
            done = kimi("mcp", "auth", "linear", share=share, variables=browser(tmp_path))
            assert done.code == 0, done.stderr
        assert site.asked.count("POST /register") == 1


QUICK = """
import socket, subprocess, sys
from urllib.parse import parse_qs, urlsplit
back = urlsplit(parse_qs(urlsplit(sys.argv[2]).query)["redirect_uri"][0])
socket.create_connection((back.hostname, back.port)).close()
subprocess.Popen([sys.executable, *sys.argv[1:]])
"""
"""A browser that the server sends back before anything else happens."""


def test_redirect_listener_is_ready_before_the_browser_returns(mcp: Mcp, share: Path, tmp_path: Path) -> None:
    browser(tmp_path)
    quick = tmp_path / "quick.py"
    quick.write_text(QUICK)
    command = shlex.join([sys.executable, str(quick), str(tmp_path / "browser.py")])
    with mcp_site() as site:
        mcp("add", "-t", "http", "-a", "oauth", "linear", site.url)
        done = kimi("mcp", "auth", "linear", share=share, variables={"BROWSER": f"{command} %s"})
    assert done.code == 0, done.stderr


def test_failed_login_reports_the_failing_step(mcp: Mcp, share: Path) -> None:
    with mcp_site(registers=False) as site:
        mcp("add", "-t", "http", "-a", "oauth", "closed", site.url)
        done = kimi("mcp", "auth", "closed", share=share, variables={"BROWSER": "false"})
    assert done.code == 1
    assert "Registration failed: 404" in done.stderr


def test_unneeded_login_is_reported(mcp: Mcp, share: Path) -> None:
    with mcp_site(open_to_all=True) as site:
        mcp("add", "-t", "http", "-a", "oauth", "open", site.url)
        done = kimi("mcp", "auth", "open", share=share, variables={"BROWSER": "false"})
    assert done.code == 0
    assert done.stdout.splitlines()[2:] == ["Successfully authorized with 'open'.", "Available tools: 1"]
    assert done.stderr == "'open' wants no login; remove 'auth' from its entry, or sessions wait for one.\n"


def test_list_needs_no_library(share: Path, tmp_path: Path) -> None:
    write_servers(share, SEVERAL)
    loaded = Path(__file__).parents[2] / "budgets" / "loaded.py"
    import subprocess

    done = subprocess.run(
        [sys.executable, str(loaded), "mcp", "list"],
        env={**os.environ, "KIMI_SHARE_DIR": str(share)},
        capture_output=True,
        timeout=30,
        check=True,
    )
    packages = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert not packages & {"fastmcp", "mcp", "httpx2", "key_value", "rich", "anyio", "dependency_injector"}
