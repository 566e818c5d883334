"""The command lines of the SDKs against the real server (runtime spec 1.4, 1.5)."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.command import environment
from tests.support.program.program import Program, start


class Server:
    """A running `kimi --wire`, seen through its pipes."""

    def __init__(self, process: Program) -> None:
        self.process = process
        self._last_id = 0

    def call(self, method: str, **params: Any) -> Any:
        """Send a request; the result of its response, events before it left out."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": str(self._last_id), "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == str(self._last_id):
                return answer.get("result", answer.get("error"))
        raise AssertionError("the server ended without an answer")

    def end(self) -> int:
        """Close the input and wait for the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=20)


@contextmanager
def server(*arguments: str, share: Path, cwd: Path, **variables: str) -> Generator[Server]:
    """`kimi` with `arguments`, killed at the end if it still runs."""
    process = start(arguments, cwd, environment(share, **variables))
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def scripted(tmp_path: Path, **capabilities: bool) -> dict[str, Any]:
    """A configuration whose model answers "hello" to three prompts."""
    scripts = tmp_path / "scripts.json"
    scripts.write_text(json.dumps(["text: hello"] * 3))
    provider = {"type": "_scripted_echo", "base_url": "", "api_key": ""}
    model: dict[str, Any] = {"provider": "p", "model": "scripted", "max_context_size": 100_000}
    return {
        "default_model": "m",
        "providers": {"p": {**provider, "env": {"KIMI_SCRIPTED_ECHO_SCRIPTS": str(scripts)}}},
        "models": {"m": {**model, "capabilities": capabilities or []}},
    }


def session_directory(share: Path, work_dir: Path, session: str) -> Path:
    """Where the stores of the reference and ours keep a session."""
    return share / "sessions" / hashlib.md5(str(work_dir).encode()).hexdigest() / session


@pytest.mark.spec("R-09")
@pytest.mark.parametrize("thinking", ["--thinking", "--no-thinking"])
def test_the_node_sdk_starts_a_working_server(tmp_path: Path, thinking: str) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (share / "config.json").write_text(json.dumps(scripted(tmp_path)))
    arguments = ["--session", "id-1", "--work-dir", str(tmp_path), "--wire", "--model", "m", thinking, "--yolo"]
    with server(*arguments, "--skills-dir", str(tmp_path), share=share, cwd=tmp_path) as node:
        assert node.call("initialize", protocol_version="1.10")["protocol_version"] == "1.10"
        assert node.call("prompt", user_input="hi") == {"status": "finished"}
        assert node.end() == 0
    assert (session_directory(share, tmp_path, "id-1") / "wire.jsonl").exists()


@pytest.mark.spec("R-10")
@pytest.mark.parametrize("thinking", ["--thinking", "--no-thinking"])
def test_the_go_sdk_starts_a_working_server(tmp_path: Path, thinking: str) -> None:
    config = scripted(tmp_path, image_in=True, thinking=False)
    config["loop_control"] = {"max_steps_per_run": 0, "max_retries_per_step": 0}
    config["mcp"] = {"client": {"tool_call_timeout_ms": 0}}
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    arguments = ["--wire", "--config", json.dumps(config), "--model", "m", "--work-dir", str(tmp_path)]
    arguments += ["--session", "id-1", "--mcp-config-file", str(tmp_path / "mcp.json"), "--mcp-config", "{}"]
    arguments += ["--auto-approve", thinking, "--skills-dir", str(tmp_path)]
    variables = {"KIMI_BASE_URL": "http://127.0.0.1:9/v1", "KIMI_API_KEY": "sk-1234567890"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with server(*arguments, share=tmp_path / "share", cwd=tmp_path, **variables) as go:
        assert go.call("prompt", user_input=[image]) == {"status": "finished"}
        assert go.end() == 0


def test_a_capability_that_the_go_sdk_sets_to_false_is_missing(tmp_path: Path) -> None:
    config = scripted(tmp_path, image_in=False)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with server("--wire", "--config", json.dumps(config), share=tmp_path / "share", cwd=tmp_path) as go:
        assert go.call("prompt", user_input=[image])["code"] == -32002


@pytest.mark.parametrize("option", ["--session", "--resume", "-S", "-r"])
def test_a_session_is_created_under_its_id_and_resumed(tmp_path: Path, option: str) -> None:
    arguments = ("--wire", option, "id-1", "--config", json.dumps(scripted(tmp_path)))
    for _ in range(2):
        with server(*arguments, share=tmp_path / "share", cwd=tmp_path) as client:
            assert client.call("prompt", user_input="hi") == {"status": "finished"}
            assert client.end() == 0
    sessions = session_directory(tmp_path / "share", tmp_path, "id-1").parent
    assert [path.name for path in sessions.iterdir() if path.is_dir()] == ["id-1"]
    assert (sessions / "id-1" / "context.jsonl").read_text().count('"user"') == 2


@pytest.mark.spec("R-12")
@pytest.mark.parametrize("end", ["eof", "interrupt"])
def test_end_of_input_and_interrupt_exit_with_status_zero(tmp_path: Path, end: str) -> None:
    with server("--wire", share=tmp_path, cwd=tmp_path) as client:
        client.call("initialize", protocol_version="1.10")
        if end == "interrupt":
            client.process.send_signal(signal.SIGINT)
            assert client.process.wait(timeout=20) == 0
        else:
            assert client.end() == 0


@pytest.mark.spec("R-24")
def test_a_work_dir_behind_a_symlink_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    arguments = ("--wire", "--work-dir", str(link), "--session", "id-1", "--config", json.dumps(scripted(tmp_path)))
    share = tmp_path / "share"
    with server(*arguments, share=share, cwd=tmp_path) as client:
        assert client.call("prompt", user_input="hi") == {"status": "finished"}
        assert client.end() == 0
    assert (session_directory(share, link, "id-1") / "context.jsonl").exists()
    listed = json.loads((share / "kimi.json").read_text())["work_dirs"]
    assert [entry["path"] for entry in listed] == [str(link)]
    prompt = (session_directory(share, link, "id-1") / "context.jsonl").read_text().splitlines()[0]
    assert str(link) in prompt
    assert str(tmp_path / "real") not in prompt


def test_the_prompt_option_is_ignored_with_a_line_in_the_log(tmp_path: Path) -> None:
    with server("--wire", "-p", "hello", share=tmp_path, cwd=tmp_path) as client:
        client.call("initialize", protocol_version="1.10")
        assert client.end() == 0
    assert "--prompt is ignored" in (tmp_path / "logs" / "kimi.log").read_text()
