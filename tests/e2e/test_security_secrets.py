"""Keys stay where they belong, and files that hold secrets stay closed (tools spec 2.3, runtime spec 2.5, 2.8)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.program.wire_process import Place, approval, approve
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import call_reply, error_reply, text_reply
from tests.support.providers.scripts import call, shell, step
from tests.support.stored_sessions import Json

KEYS = {
    "KIMI_API_KEY": "sk-kimi-0123456789",
    "OPENAI_API_KEY": "sk-openai-0123456789",
    "MY_OWN_KEY": "sk-test-secret",  # the value that the configuration holds too
}


def shown(place: Place) -> str:
    """Everything that the program wrote down: logs and sessions, the configuration left out."""
    files = [path for path in place.share.rglob("*") if path.is_file() and path.name != "config.toml"]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


@pytest.mark.spec("T-54", "R-50")
def test_commands_do_not_inherit_api_keys(place: Place) -> None:
    place.environ = {**KEYS, "HARMLESS": "kept"}
    place.config = '[providers.other]\ntype = "openai_legacy"\nbase_url = ""\napi_key = ""\n'
    place.script(shell("c1", "env; cat /proc/self/environ | tr '\\0' '\\n'"), "text: done")
    with place.wire("--yolo") as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        output = kimi.payloads("ToolResult")[0]["return_value"]["output"]
        assert kimi.finish() == 0
    assert "HARMLESS=kept" in output
    assert not [key for key in KEYS.values() if key in output]
    assert "KIMI_SCRIPTED_ECHO_SCRIPTS" not in output
    assert "scripts.json" not in output


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_no_key_is_in_a_log_a_session_or_an_error(place: Place, options: list[str]) -> None:
    place.environ = KEYS
    secrets = [*KEYS.values(), "header-secret-123"]
    refusal = error_reply(401, "Incorrect API key provided: sk-test-secret or sk-openai-0123456789")
    with loopback(call_reply(("c1", "Shell", '{"command":"env"}')), text_reply("done"), refusal) as server:
        place.provider(server.base_url)
        path = place.share / "config.toml"
        headers = 'custom_headers = {"X-Secret" = "header-secret-123"}\n[models.m]'
        path.write_text(path.read_text().replace("[models.m]", headers))
        with place.wire("--yolo", *options) as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.prompt("again")["error"]["code"] == -32003
            assert kimi.finish() == 0
        assert server.requests[0].headers["authorization"] == "Bearer sk-openai-0123456789"
        assert server.requests[0].headers["x-secret"] == "header-secret-123"
    written = shown(place) + kimi.stderr.decode()
    assert "401" in written or options == []
    assert not [secret for secret in secrets if secret in written]


@pytest.mark.parametrize("way", ["flag", "file"])
def test_a_start_that_fails_shows_no_key(place: Place, way: str) -> None:
    broken = '[providers.p]\ntype = "no such type"\nbase_url = "http://u:pass-123456@h"\napi_key = "sk-broken-123456"\n'
    path = place.share / "config.toml"
    path.write_text(broken)
    done = place.run("--wire", "--debug", *(["--config", broken] if way == "flag" else []))
    assert done.returncode == (2 if way == "flag" else 1)
    assert b"type" in done.stderr
    for secret in ("sk-broken-123456", "pass-123456"):
        assert secret not in done.stderr.decode() + shown(place)


def own_paths(place: Place) -> list[Path]:
    """Files of ours, those that exist and those that another version makes."""
    names = ["config.toml", "config.json", "mcp.json", "kimi.json", "credentials/token.json", "mcp-oauth/t.json"]
    for name in names:
        path = place.share / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() and name != "config.json":
            path.write_text('{"work_dirs": []}' if name == "kimi.json" else '{"token": "sk-test-secret"}')
    session = place.share / "sessions" / "x" / "other" / "context.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text("sk-test-secret")
    return [*(place.share / name for name in names), session]


def attempts(paths: list[str]) -> list[str]:
    """A call of every file tool for each path."""
    found: list[str] = []
    for number, path in enumerate(paths):
        edit: Json = {"path": path, "edit": {"old": "sk", "new": "x"}}
        found += [
            call(f"r{number}", "ReadFile", {"path": path}),
            call(f"w{number}", "WriteFile", {"path": path, "content": "mine", "mode": "append"}),
            call(f"e{number}", "StrReplaceFile", edit),
            call(f"g{number}", "Grep", {"pattern": "sk-", "path": path, "output_mode": "content"}),
        ]
    return found


@pytest.mark.spec("T-45")
@pytest.mark.parametrize("through", ["path", "link", "dots", "parent link"])
def test_program_files_are_closed_to_tools_even_under_yolo(place: Place, through: str) -> None:
    place.script("text: x")
    paths = own_paths(place)
    (place.work / "share").symlink_to(place.share)
    named: list[str] = []
    for number, path in enumerate(paths):
        (place.work / f"link{number}").symlink_to(path)
        inside = path.relative_to(place.share)
        spelling = {"path": path, "link": f"link{number}", "dots": f"{place.work}/../share/{inside}"}
        named.append(str(spelling.get(through, f"share/{inside}")))
    place.script(step(*attempts(named)), "text: done")
    before = {path: path.read_bytes() for path in paths if path.exists() and path.name != "kimi.json"}
    with place.wire("--yolo") as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        results = kimi.payloads("ToolResult")
        assert kimi.finish() == 0
    assert len(results) == 4 * len(paths)
    allowed = [one["tool_call_id"] for one in results if not one["return_value"]["is_error"]]
    assert [name for name in allowed if not name.startswith("g")] == []
    assert "sk-test-secret" not in str(results)
    assert "mine" not in str(kimi.payloads("ApprovalRequest"))
    assert {path: path.read_bytes() for path in before} == before
    assert not (place.share / "config.json").exists()


def test_a_configuration_file_somewhere_else_is_closed_too(place: Place) -> None:
    place.script(step(*attempts(["my.toml"])), "text: done")
    config = place.work / "my.toml"
    config.write_bytes((place.share / "config.toml").read_bytes())
    with place.wire("--yolo", "--config-file", str(config)) as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert "sk-test-secret" not in str(kimi.payloads("ToolResult"))
    assert config.read_bytes() == (place.share / "config.toml").read_bytes()


def test_secrets_of_the_project_are_closed_through_links_too(place: Place) -> None:
    names = [".env", ".env.local", "id_rsa", "server.pem", ".netrc", ".aws/credentials", "id_ed25519_sk"]
    for number, name in enumerate(names):
        path = place.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("TOKEN=very-secret")
        os.symlink(path, place.work / f"plain{number}.txt")
    (place.work / ".env.example").write_text("TOKEN=fill-me-in")
    paths = [*names, *(f"plain{number}.txt" for number in range(len(names)))]
    reads = [call(f"r{number}", "ReadFile", {"path": path}) for number, path in enumerate(paths)]
    grep = call("grep", "Grep", {"pattern": "TOKEN", "output_mode": "content", "include_ignored": True})
    place.script(step(*reads, grep, call("open", "ReadFile", {"path": ".env.example"})), "text: done")
    with place.wire("--yolo") as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    results = {one["tool_call_id"]: one["return_value"] for one in kimi.payloads("ToolResult")}
    assert "very-secret" not in b"".join(kimi.raw).decode()
    assert all(results[f"r{number}"]["is_error"] for number in range(len(paths)))
    assert "fill-me-in" in results["open"]["output"]


@pytest.mark.spec("T-41")
def test_additional_directories_are_kept_with_the_session_until_removed(place: Place) -> None:
    extra = place.root / "extra"
    extra.mkdir()
    (place.work / "inside").mkdir()
    (extra / "a.txt").write_text("needle\n")
    place.config = '[files]\nread_outside = "deny"\n'
    script = step(
        call("c1", "ReadFile", {"path": str(extra / "a.txt")}),
        call("c2", "WriteFile", {"path": str(extra / "b.txt"), "content": "x"}),
        call("c3", "StrReplaceFile", {"path": str(extra / "a.txt"), "edit": {"old": "needle", "new": "needle!"}}),
        call("c4", "Glob", {"pattern": "*.txt", "directory": str(extra)}),
        call("c5", "Grep", {"pattern": "needle", "path": str(extra), "output_mode": "content"}),
    )
    for arguments in (["--add-dir", str(extra), "--add-dir", "inside"], ["--continue"]):
        place.script(script, "text: done")
        with place.wire(*arguments) as kimi:
            assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
            assert kimi.finish() == 0
        results = [one["return_value"] for one in kimi.payloads("ToolResult")]
        assert [one["is_error"] for one in results] == [False] * 5
        assert [one["action"] for one in kimi.payloads("ApprovalRequest")] == ["edit file"] * 2
    state = place.session_dirs()[0] / "state.json"
    assert json.loads(state.read_text())["additional_dirs"] == [str(extra)]
    shutil.rmtree(extra)
    place.script(step(script, shell("c6", "true")), "text: done")
    with place.wire("--continue") as kimi:
        answer = kimi.prompt("go", lambda params: approval(params, "approve_for_session"))
        assert answer["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert json.loads(state.read_text())["additional_dirs"] == []
    assert "edit file" not in [one["action"] for one in kimi.payloads("ApprovalRequest")]
