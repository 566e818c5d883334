"""Secrets planted at every place that takes one: none is in anything that a full run writes, sends or starts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.support.mcp.entries import raw_entry
from tests.support.program.processes import all_gone
from tests.support.program.wire_process import Place, WireProcess, approve
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import ProviderServer, Reply, call_reply, error_reply, text_reply

SECRETS = {
    name: f"planted-{number:02}-{name}-5d1e7b"
    for number, name in enumerate(
        (
            "provider-key",
            "other-provider-key",
            "provider-header",
            "provider-env",
            "search-key",
            "fetch-header",
            "environment-kimi",
            "environment-openai",
            "mcp-env",
            "mcp-variable",
            "mcp-argument",
            "mcp-login",
            "project-env",
            "own-session",
        )
    )
}
"""Fourteen secrets by the place where each is planted."""

CONFIG = f"""
[services.moonshot_search]
base_url = "http://127.0.0.1:9/search"
api_key = "{SECRETS["search-key"]}"
[services.moonshot_fetch]
base_url = "http://127.0.0.1:9/fetch"
api_key = ""
custom_headers = {{"X-Fetch" = "{SECRETS["fetch-header"]}"}}
[providers.q]
type = "openai_legacy"
base_url = "http://127.0.0.1:9/v1"
api_key = "{SECRETS["other-provider-key"]}"
env = {{OTHER_TOKEN = "{SECRETS["provider-env"]}"}}
custom_headers = {{"X-Other" = "{SECRETS["provider-header"]}"}}
[[hooks]]
event = "PreToolUse"
command = "env >> hook-env.txt; cat >> hook-input.txt"
[[hooks]]
event = "SessionEnd"
command = "env >> hook-env.txt; cat >> hook-input.txt"
"""

LOOK = (
    "env; for p in $PPID $$ $(ps -o ppid= -p $PPID 2>/dev/null); do "
    "tr '\\0' '\\n' < /proc/$p/environ; tr '\\0' ' ' < /proc/$p/cmdline; done; "
    "ps axeww 2>/dev/null | grep KIMI_SHARE_DIR"
)
"""A command that tells its environment, and the environment and the title of those who started it."""


def plant(place: Place, provider: str) -> None:
    """Write a secret into everything that takes one."""
    place.config = CONFIG
    place.provider(provider)
    path = place.share / "config.toml"
    path.write_text(path.read_text().replace("sk-test-secret", SECRETS["provider-key"]))
    entry = raw_entry(tools=["echo", "env"], env={"TOKEN": SECRETS["mcp-env"], "PASSED": "${MCP_VARIABLE}"})
    (place.share / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))
    login = place.share / "mcp-oauth" / "raw.json"
    login.parent.mkdir()
    login.write_text(json.dumps({"token": SECRETS["mcp-login"]}))
    (place.work / ".env").write_text(f"KEY={SECRETS['project-env']}\n")
    session = place.share / "sessions" / "0" / "1" / "context.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text(json.dumps({"role": "user", "content": SECRETS["own-session"]}) + "\n")
    place.environ |= {
        "KIMI_API_KEY": SECRETS["environment-kimi"],
        "OPENAI_API_KEY": SECRETS["environment-openai"],
        "MCP_VARIABLE": SECRETS["mcp-variable"],
        "COPY_OF_A_KEY": f"Bearer {SECRETS['search-key']}",
    }


def replies(place: Place) -> list[Reply]:
    """A turn that looks everywhere, one that fails with the key in the error, and one that writes all of it down."""
    paths = [place.share / "config.toml", place.share / "mcp.json", place.work / ".env", "/proc/self/environ"]
    reading = [(f"r{number}", "ReadFile", json.dumps({"path": str(path)})) for number, path in enumerate(paths)]
    background = {"command": LOOK, "run_in_background": True, "description": "look"}
    explore = {"description": "look", "prompt": "look", "subagent_type": "coder"}
    search = {"pattern": "planted-", "path": str(place.root), "output_mode": "content"}
    return [
        call_reply(("s1", "Shell", json.dumps({"command": LOOK})), *reading),
        call_reply(("b1", "Shell", json.dumps(background)), ("g1", "Grep", json.dumps(search))),
        call_reply(("m1", "mcp__raw__echo", '{"text": "hello"}'), ("a1", "Agent", json.dumps(explore))),
        call_reply(("s2", "Shell", json.dumps({"command": LOOK}))),
        text_reply("The subagent has looked at everything that there is to see here and found nothing to report."),
        text_reply("done"),
        error_reply(401, f"Incorrect API key provided: {SECRETS['environment-openai']}"),
    ]


def run_everything(place: Place, server: ProviderServer) -> str:
    """Run the turns; return what the client saw, what the model was sent, and what was written to stderr."""
    passed = json.dumps({"mcpServers": {"given": raw_entry(tools=["env"], env={"T": SECRETS["mcp-argument"]})}})
    with place.wire("--debug", "--mcp-config", passed, cold=True) as kimi:
        kimi.initialize()
        titles = process_titles(kimi)
        kimi.prompt("look", approve)
        kimi.prompt("again", approve)
        shown = b"".join(kimi.raw).decode("utf-8", "replace")
        kimi.finish()
        shown += kimi.stderr.decode("utf-8", "replace")
    bodies = [request.body.decode("utf-8", "replace") for request in server.requests]
    return "\n".join([titles, shown, *bodies])


def process_titles(kimi: WireProcess) -> str:
    """What any user of the machine sees of the process, and what its own user sees of its environment."""
    title = Path(f"/proc/{kimi.process.pid}")
    return (title / "cmdline").read_bytes().decode() + (title / "environ").read_bytes().decode("utf-8", "replace")


def written(place: Place) -> dict[str, str]:
    """Every file below the place but those that hold the secrets; archives by their members."""
    planted = {"config.toml", "mcp.json", ".env", "raw.json"}
    found: dict[str, str] = {}
    for path in place.root.rglob("*"):
        if not path.is_file() or path.name in planted or path.parent == place.share / "sessions" / "0" / "1":
            continue
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    found[f"{path}:{name}"] = archive.read(name).decode("utf-8", "replace")
        else:
            found[str(path)] = path.read_text(encoding="utf-8", errors="replace")
    return found


@pytest.mark.spec("R-261")
def test_no_planted_secret_is_in_what_a_run_writes_sends_or_starts(marked_place: Place, word: str) -> None:
    place = marked_place
    with loopback() as server:
        plant(place, server.base_url)
        server.add(*replies(place))
        shown = run_everything(place, server)
        # The key of a provider goes to that provider, and only in the header that it asks for.
        assert {request.headers["authorization"] for request in server.requests} == {
            f"Bearer {SECRETS['environment-openai']}"
        }
        headers = str([{**request.headers, "authorization": ""} for request in server.requests])
    export = place.run("export", place.session_dirs()[-1].name, "--output", str(place.root / "out.zip"), "--yes")
    assert export.returncode == 0, export.stderr
    files = written(place)
    assert {"out.zip", "hook-env.txt", "hook-input.txt"} <= {Path(name.partition(":")[0]).name for name in files}
    assert all("HOME=" in shown for shown in (files[str(place.work / "hook-env.txt")], shown))
    everything = files | {"shown": shown, "headers": headers, "export": (export.stdout + export.stderr).decode()}
    leaks = [f"{name} in {where}" for where, text in everything.items() for name in SECRETS if SECRETS[name] in text]
    assert leaks == []
    assert all_gone(word)
