"""`kimi doctor` as a process: findings, advice, and that secrets are not shown."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.mcp.entries import raw_entry
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, error_reply, text_reply

NAMES = ["configuration", "model", "key", "proxy", "endpoint", "mcp", "ripgrep", "sandbox", "terminal"]


def diagnose(place: Place, *arguments: str) -> tuple[subprocess.CompletedProcess[bytes], dict[str, Json]]:
    """Return what `kimi doctor --json` finds, by the name of the check."""
    done = place.run(*arguments, "doctor", "--json")
    assert done.stderr == b""
    report = json.loads(done.stdout)
    assert report["ok"] is (done.returncode == 0)
    return done, {check["name"]: check for check in report["checks"]}


def lines(done: subprocess.CompletedProcess[bytes]) -> dict[str, str]:
    """Return the printed lines, by the name of the check."""
    *checks, _ = done.stdout.decode().splitlines()
    return {line[9:].partition(":")[0]: line for line in checks}


def test_working_configuration_passes_all_checks(place: Place) -> None:
    with loopback(text_reply("ok", "and", "more")) as server:
        place.provider(server.base_url)
        (place.share / "config.toml").chmod(0o600)
        done = place.run("doctor")
        [request] = server.requests
    assert done.returncode == 0
    assert list(lines(done)) == NAMES
    assert done.stdout.decode().endswith("\nEverything that is needed works.\n")
    assert lines(done)["endpoint"] == f"ok       endpoint: {server.base_url[7:-3]} answers."
    assert len(request.body) < 1000
    assert "tools" not in request.json


def test_missing_configuration_sends_no_request(place: Place) -> None:
    done, found = diagnose(place)
    assert done.returncode == 1
    assert list(found) == NAMES
    assert (found["model"]["status"], found["model"]["advice"]) == ("failed", "Run 'kimi setup'.")
    assert {found[name]["status"] for name in ("key", "proxy", "endpoint")} == {"skipped"}


@pytest.mark.parametrize(
    ("reply", "words", "advice"),
    [
        (error_reply(401, "bad key sk-test-secret"), "HTTP 401: bad key ***", "Enter another key with 'kimi setup'"),
        (error_reply(403, "no"), "no", "Enter another key with 'kimi setup', or correct OPENAI_API_KEY."),
        (error_reply(404, "no such model"), "no such model", "and the id of the model, 'test-model'."),
        (error_reply(429, "slow down"), "slow down", "Wait, or look at the limits of your account."),
        (error_reply(503, "busy"), "busy", "The provider has trouble: try again later."),
        (error_reply(400, "what?"), "what?", "Check the provider and the model in the configuration."),
        (Reply(fault="refuse"), "connection", "Start the server."),
    ],
)
def test_endpoint_failure_has_advice(place: Place, reply: Reply, words: str, advice: str) -> None:
    with loopback(reply) as server:
        done, found = diagnose(place.provider(server.base_url))
    assert done.returncode == 1
    assert found["endpoint"]["status"] == "failed"
    assert words in found["endpoint"]["message"]
    assert advice in found["endpoint"]["advice"]


def test_refused_connection_advises_to_start_the_server(place: Place) -> None:
    _, found = diagnose(place.provider("http://127.0.0.1:1/v1"))
    assert found["endpoint"]["status"] == "failed"
    assert found["endpoint"]["advice"] == "Start the server."


def test_unusable_configuration_file_is_reported(place: Place) -> None:
    (place.share / "config.toml").write_text("default_thinking = 7\n[providers.p]\napi_key = 'sk-hidden-1'")
    done = place.run("doctor")
    assert done.returncode == 1
    assert list(lines(done)) == ["configuration", "terminal"]
    assert "default_thinking: " in lines(done)["configuration"]
    assert b"sk-hidden" not in done.stdout


def test_world_readable_configuration_is_a_warning(place: Place) -> None:
    place.script("text: x")
    path = place.share / "config.toml"
    path.chmod(0o644)
    done, found = diagnose(place)
    assert done.returncode == 0
    assert (found["configuration"]["status"], found["configuration"]["advice"]) == ("warning", f"Run: chmod 600 {path}")


def test_options_before_the_command_are_applied(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    other.chmod(0o600)
    _, found = diagnose(place, "--config-file", str(other))
    assert found["configuration"]["message"] == f"{other} is valid."
    _, found = diagnose(place, "--model", "nope")
    assert found["configuration"]["message"].startswith("Unknown model 'nope'")


def test_source_of_the_api_key_is_reported(place: Place) -> None:
    place.write_config("openai_legacy", base_url="http://127.0.0.1:1/v1")
    assert diagnose(place)[1]["key"]["message"] == "Taken from the file."
    place.environ = {"OPENAI_API_KEY": "sk-from-outside"}
    done, found = diagnose(place)
    assert found["key"]["message"] == "Taken from the variable OPENAI_API_KEY."
    assert b"sk-from" not in done.stdout
    place.environ = {"HTTPS_PROXY": "http://127.0.0.1:1"}  # nothing leaves this machine
    config = place.share / "config.toml"
    text = config.read_text().replace("http://127.0.0.1:1/v1", "https://provider.invalid/v1")
    config.write_text(text.replace("sk-test-secret", ""))
    assert diagnose(place)[1]["key"] == {
        "name": "key",
        "status": "failed",
        "message": "Provider 'p' has no API key.",
        "advice": "Run 'kimi setup', or set OPENAI_API_KEY.",
    }


def test_proxy_is_checked(place: Place) -> None:
    place.provider("http://127.0.0.1:1/v1")
    place.environ = {"HTTP_PROXY": "http://user:pass-word@127.0.0.1:1"}
    done, found = diagnose(place)
    assert (found["proxy"]["status"], found["proxy"]["advice"]) == ("warning", "Set NO_PROXY=localhost,127.0.0.1")
    assert found["endpoint"]["advice"].startswith("Check the proxy")
    assert b"pass-word" not in done.stdout
    place.environ = {"HTTP_PROXY": "gopher://x"}
    _, found = diagnose(place)
    assert (found["proxy"]["status"], found["endpoint"]["status"]) == ("failed", "failed")


def test_mcp_servers_are_tried(place: Place) -> None:
    place.script("text: x")
    servers = {
        "works": raw_entry(tools=["echo", "env"]),
        "missing": {"command": "no-such-command-at-all", "env": {"TOKEN": "sk-mcp-secret"}},
        "silent": raw_entry(silent=True, connect_timeout_ms=300),
        "off": {"command": "x", "enabled": False},
        "broken": {},
    }
    (place.share / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done, found = diagnose(place)
    assert done.returncode == 1
    states = {name.removeprefix("mcp "): check["status"] for name, check in found.items() if name.startswith("mcp ")}
    assert states == {
        "works": "ok", "missing": "failed", "silent": "failed", "off": "skipped", "broken": "failed",
    }  # fmt: skip
    assert found["mcp works"]["message"] == "Connected, 2 tools."
    assert "no-such-command-at-all" in found["mcp missing"]["message"]
    assert found["mcp silent"]["message"] == "No answer within 0.3 s."
    assert found["mcp broken"]["advice"] == "Correct its entry in the MCP configuration."
    assert b"sk-mcp-secret" not in done.stdout


def test_ripgrep_check_reports_program_or_advice(place: Place, tmp_path: Path) -> None:
    fake = tmp_path / "rg"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    place.config = f'[tools]\nripgrep_path = "{fake}"\n'
    place.script("text: x")
    assert diagnose(place)[1]["ripgrep"]["message"] == f"{fake} is used."
