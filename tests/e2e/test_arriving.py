"""The first hour of somebody who comes from kimi-cli: a share directory as it leaves one, step by step."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply

CONFIGURATION = """\
# written by kimi-cli, with notes of the user
default_model = "kimi-code/kimi-for-coding"
default_thinking = true
telemetry = true
theme = "dark"
future_switch = true

[providers."managed:kimi-code"]
type = "kimi"
base_url = "@URL@"
api_key = ""
[providers."managed:kimi-code".oauth]
storage = "file"
key = "oauth/kimi-code"

[models."kimi-code/kimi-for-coding"]
provider = "managed:kimi-code"
model = "kimi-for-coding"
max_context_size = 262144
capabilities = ["thinking", "image_in", "video_in"]
display_name = "Kimi for Coding"

[loop_control]
max_steps_per_run = 500

[services.moonshot_search]
base_url = "@URL@/search"
api_key = ""
[services.moonshot_search.oauth]
storage = "file"
key = "oauth/kimi-code"

[[hooks]]
event = "Stop"
command = "true"
"""

SESSIONS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")


def leave_share(place: Place, url: str, more: str = "") -> None:
    """Write what kimi-cli leaves: a login, two sessions, a plugin, MCP servers, a hook, a skill, an agent file."""
    share, work = place.share, os.path.abspath(place.work)
    files: dict[Path, str] = {
        share / "config.toml": CONFIGURATION.replace("@URL@", url) + more,
        share / "credentials/kimi-code.json": '{"access_token": "planted-token"}',
        share / "plugins/weather/plugin.json": '{"name": "weather", "version": "1.0.0", "tools": []}',
        share / "agents/reviewer/agent.yaml": "version: 1\nagent:\n  extend: default\n  name: reviewer\n",
        share / "agents/broken/agent.yaml": "version: 1\nagent:\n  extend: default\n  tools: [no.such:Tool]\n",
        share / "kimi.json": json.dumps(
            {"work_dirs": [{"path": work, "kaos": "local", "last_session_id": SESSIONS[1]}]}
        ),
        share / "mcp.json": json.dumps(
            {
                "mcpServers": {
                    "files": {"command": sys.executable, "args": ["-c", "pass"]},
                    "issues": {"url": "https://mcp.test/mcp", "transport": "http", "auth": "oauth"},
                }
            }
        ),
        place.home / ".kimi/skills/release/SKILL.md": "---\nname: release\ndescription: Make a release\n---\nDo it.\n",
    }
    directory = share / "sessions" / hashlib.md5(work.encode()).hexdigest()
    for number, name in enumerate(SESSIONS):
        records = [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": "answer"}]
        files[directory / name / "context.jsonl"] = "".join(f"{json.dumps(one)}\n" for one in records)
        files[directory / name / "wire.jsonl"] = json.dumps({"type": "metadata", "protocol_version": "1.10"}) + "\n"
        files[directory / name / "state.json"] = json.dumps({"version": 1, "approval": {"yolo": False}})
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)


def snapshot(share: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file with its mode and content."""
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in share.rglob("*") if path.is_file()}


def review(place: Place, *options: str) -> tuple[int, Json, dict[str, Json]]:
    done = place.run("migrate", "--json", *options)
    assert done.stderr == b""
    report = json.loads(done.stdout)
    return done.returncode, report, {one["name"]: one for one in report["items"]}


@pytest.mark.spec("R-270")
def test_the_review_names_each_thing_and_changes_nothing(place: Place) -> None:
    leave_share(place, "https://api.kimi.com/coding/v1")
    before = snapshot(place.share)
    code, report, items = review(place)
    assert snapshot(place.share) == before
    assert (code, report["ok"], report["applied"], report["changes"]) == (0, True, False, [])
    status = {name: one["status"] for name, one in items.items() if name != "command"}  # it depends on this machine
    agents = place.share / "agents"
    assert status == {
        "configuration": "works",
        "keys": "note",
        "provider managed:kimi-code": "action",
        "search": "action",
        "fetch": "note",
        "mcp files": "works",
        "mcp issues": "action",
        "hooks": "works",
        "skills": "works",
        f"agent {agents}/broken/agent.yaml": "action",
        f"agent {agents}/reviewer/agent.yaml": "works",
        "sessions": "works",
        "plugin weather": "action",
        "login": "note",
    }
    assert items["keys"]["message"] == (
        "These do nothing here: telemetry, future_switch, providers.managed:kimi-code.oauth,"
        " models.kimi-code/kimi-for-coding.display_name, services.moonshot_search.oauth."
    )
    assert "https://www.kimi.com/code/console" in items["provider managed:kimi-code"]["message"]
    assert items["mcp issues"]["advice"] == "Run: kimi mcp auth issues"
    assert items["sessions"]["message"] == "2 sessions of 1 work directory can be resumed."
    assert "planted-token" not in json.dumps(report)
    as_text = place.run("migrate").stdout.decode()
    assert as_text.startswith(f"Share directory: {place.share}\n")
    assert len(as_text.splitlines()) == 1 + len(items)


@pytest.mark.spec("R-270")
def test_each_step_of_the_first_hour_works_or_says_what_to_do(place: Place) -> None:
    with loopback(text_reply("first"), text_reply("second"), text_reply("third")) as server:
        leave_share(place, server.base_url)
        refused = place.run("--quiet", "-p", "hi")
        assert refused.returncode == 1
        assert b"run 'kimi setup', or set KIMI_API_KEY" in refused.stdout
        assert server.requests == []

        place.environ = {"MY_KEY": "sk-new-key"}
        assert place.run("setup", "--provider", "managed:kimi-code", "--api-key-env", "MY_KEY").returncode == 0
        place.environ = {}
        text = (place.share / "config.toml").read_text()
        assert text.startswith("# written by kimi-cli")
        assert tomllib.loads(text)["future_switch"] is True
        assert review(place)[2]["search"]["status"] == "works"  # with the key of the provider

        done = place.run("--quiet", "-p", "hi")
        assert (done.returncode, done.stdout) == (0, b"first\n")
        resumed = place.run("--session", SESSIONS[0], "--quiet", "-p", "again")
        assert resumed.stdout == b"second\n"
        sent = [one["content"] for one in server.requests[1].json["messages"] if one["role"] == "user"]
        assert sent[0] == "question 0"
        agent = str(place.share / "agents/reviewer/agent.yaml")
        assert place.run("--agent-file", agent, "--quiet", "-p", "hi").stdout == b"third\n"
    listed = place.run("mcp", "list").stdout.decode()
    assert "issues (http): https://mcp.test/mcp [authorization required - run: kimi mcp auth issues]" in listed
    assert place.run("export", SESSIONS[1], "--yes", "-o", str(place.root / "s.zip")).returncode == 0
    assert place.run("logout").returncode == 0
    assert not (place.share / "credentials/kimi-code.json").exists()


REFUSED = """
[[hooks]]
event = "SomethingNewer"  # of a later version
command = "true"

[[hooks]]
event = "PreToolUse"
command = "false"
timeout = 9000
"""


@pytest.mark.spec("R-270")
def test_what_the_program_cannot_start_with_is_taken_out_after_a_backup(place: Place) -> None:
    leave_share(place, "https://api.kimi.com/coding/v1", REFUSED)
    config = place.share / "config.toml"
    config.chmod(0o644)
    before = config.read_bytes()
    assert place.run("--wire").returncode == 1
    code, report, items = review(place)
    assert (code, config.read_bytes()) == (1, before)
    assert len([one for one in report["items"] if one["status"] == "broken"]) == 2
    assert items["access"]["status"] == "action"
    assert len(report["changes"]) == 3
    code, report, items = review(place, "--apply")
    assert (code, report["ok"], report["applied"]) == (0, True, True)
    assert "configuration" in items
    text = config.read_text()
    assert "# written by kimi-cli, with notes of the user" in text
    hooks = tomllib.loads(text)["hooks"]
    assert [(one["event"], one.get("timeout")) for one in hooks] == [("Stop", None), ("PreToolUse", None)]
    assert config.stat().st_mode & 0o077 == 0
    backup = Path(report["backup"])
    assert (backup / "config.toml").read_bytes() == before
    assert (backup / "mcp.json").exists()
    assert not [path for path in (backup, *backup.iterdir()) if path.stat().st_mode & 0o077]
    again = review(place, "--apply")
    assert (again[0], again[1]["applied"], again[1]["changes"]) == (0, False, [])
    with place.wire() as kimi:
        assert kimi.initialize()["protocol_version"] == "1.10"


@pytest.mark.spec("R-270")
def test_an_old_json_file_becomes_toml(place: Place) -> None:
    old = place.share / "config.json"
    old.write_text(json.dumps({"default_model": "gone", "loop_control": {"max_steps_per_run": 7}}))
    assert review(place)[0] == 1
    assert not (place.share / "config.toml").exists()
    code, report, _ = review(place, "--apply")
    assert (code, report["applied"]) == (0, True)
    assert tomllib.loads((place.share / "config.toml").read_text()) == {"loop_control": {"max_steps_per_run": 7}}
    assert (Path(report["backup"]) / "config.json").read_bytes().startswith(b'{"default_model": "gone"')


@pytest.mark.spec("R-270")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a b", "Invalid TOML in configuration file"),
        ('[providers.p]\ntype = "new"\nbase_url = ""\napi_key = "sk-planted"\n', "providers.p.type"),
        ('[[approval.rules]]\ntool = "Shell"\ndecision = "never"\n', "approval.rules.0"),
    ],
)
def test_what_only_a_person_can_correct_is_said_and_left_alone(place: Place, text: str, reason: str) -> None:
    config = place.share / "config.toml"
    config.write_text(text)
    config.chmod(0o600)
    for options in ((), ("--apply",)):
        code, report, items = review(place, *options)
        assert (code, items["configuration"]["status"]) == (1, "broken")
        assert reason in items["configuration"]["message"]
        assert "sk-planted" not in json.dumps(report)
        assert config.read_text() == text


@pytest.mark.spec("R-270")
def test_without_a_share_directory_there_is_nothing_to_migrate(place: Place) -> None:
    place.environ = {"KIMI_SHARE_DIR": str(place.root / "none")}
    done = place.run("migrate")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"Run 'kimi setup'" in done.stderr
    assert not (place.root / "none").exists()


@pytest.mark.spec("R-270")
def test_another_program_of_the_same_name_and_variables_without_effect_are_named(place: Place) -> None:
    other = place.root / "bin" / "kimi"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    place.environ = {"PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}", "KIMI_OAUTH_HOST": "https://x.test"}
    items = review(place)[2]
    assert items["command"]["message"] == f"The command 'kimi' is another program: {other}."
    assert items["variables"]["message"] == "These do nothing here: KIMI_OAUTH_HOST."


# --- the second name of the command ---------------------------------------------------------------------------------


@pytest.mark.spec("R-274")
def test_a_host_that_starts_kimi_cli_gets_the_same_server(place: Place) -> None:
    place.write_config("_echo")
    script = Path(sys.executable).parent / "kimi-cli"
    lines: list[Json] = [
        {"jsonrpc": "2.0", "id": "1", "method": "initialize", "params": {"protocol_version": "1.10"}},
        {"jsonrpc": "2.0", "id": "2", "method": "prompt", "params": {"user_input": "text: hello"}},
    ]
    process = subprocess.Popen(
        [script, "--wire"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=place.work,
        env=place.full_environ(),
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        process.stdin.flush()
        answers: dict[str, Json] = {}
        while "2" not in answers:
            one = json.loads(process.stdout.readline())
            answers |= {one["id"]: one} if "id" in one else {}
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert errors.startswith(b"\nTo resume this session: kimi -r ")
    assert answers["1"]["result"]["protocol_version"] == "1.10"
    assert answers["2"]["result"] == {"status": "finished"}
