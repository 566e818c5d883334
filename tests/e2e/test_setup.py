"""`kimi setup` as a process: on a pipe, on a terminal, without questions; the configuration works afterwards."""

from __future__ import annotations

import os
import pty
import re
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply


def number(listing: str, title: str) -> str:
    """Return the number before a title in the list of providers."""
    found = re.search(rf"^ *(\d+)  {re.escape(title)}", listing, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.spec("R-49")
def test_setup_writes_a_working_configuration(place: Place) -> None:
    config = place.share / "config.toml"
    config.write_text("# mine\nfuture = 1 # kept\n\n[loop_control]\nmax_retries_per_step = 1 # few\n")
    with loopback(text_reply("it works")) as server:
        place.environ = {"MY_KEY": "sk-from-a-variable"}
        arguments = ("--provider", "openai_legacy", "--base-url", server.base_url, "--model", "org/m")
        done = place.run("setup", *arguments, "--api-key-env", "MY_KEY", "--context-size", "9000")
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"sk-from" not in done.stdout
        place.environ = {}
        answer = place.run("--quiet", "-p", "does it?")
        assert answer.stdout == b"it works\n"
        [request] = server.requests
    assert request.headers["authorization"] == "Bearer sk-from-a-variable"
    assert request.json["model"] == "org/m"
    text = config.read_text()
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert text.startswith('# mine\nfuture = 1 # kept\ndefault_model = "org/m"\n')
    assert "max_retries_per_step = 1 # few\n" in text
    assert tomllib.loads(text)["models"]["org/m"]["max_context_size"] == 9000


def test_questions_are_answered_on_a_pipe(place: Place) -> None:
    listing = place.run("setup", stdin=b"").stdout.decode()
    answers = [number(listing, "Anthropic"), "", "sk-typed", "claude-x", "200k", "thinking"]
    done = place.run("setup", stdin="\n".join(answers).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    raw = tomllib.loads((place.share / "config.toml").read_text())
    assert raw["default_model"] == "claude-x"
    assert raw["providers"]["anthropic"] == {
        "type": "anthropic", "base_url": "https://api.anthropic.com", "api_key": "sk-typed",
    }  # fmt: skip
    assert raw["models"]["claude-x"]["max_context_size"] == 204_800


def test_an_end_of_the_input_changes_nothing(place: Place) -> None:
    done = place.run("setup", stdin=b"1\n\n")
    assert done.returncode == 1
    assert done.stderr == b"\nNothing was changed.\n"
    assert "providers" not in tomllib.loads((place.share / "config.toml").read_text())


def test_a_closed_input_is_an_end_of_the_input(place: Place) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *kimi_command(), "setup"],
        capture_output=True,
        cwd=place.work,
        env=place.full_environ(),
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"\nNothing was changed.\n")


@pytest.mark.parametrize("number", ["0", "-1", "99", "x", "1.0", "9" * 5000])
def test_invalid_number_is_asked_again(place: Place, number: str) -> None:
    done = place.run("setup", stdin=number.encode() + b"\n")
    assert (done.returncode, done.stderr) == (1, b"\nNothing was changed.\n")
    assert b"Please answer with a number from 1" in done.stdout


def test_a_key_is_not_shown_on_a_terminal(place: Place) -> None:
    place.environ = {"HTTPS_PROXY": "http://127.0.0.1:1"}  # nothing leaves this machine
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*kimi_command(), "setup"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=place.work,
        env=place.full_environ(),
        start_new_session=True,
    ) as kimi:
        os.close(follower)
        seen = b""
        for wanted, answer in (
            (b"Number", "1"),
            (b"Base URL", ""),
            (b"API key", "sk-unseen"),
            (b"Model", ""),
            (b"Context", ""),
            (b"Capabilities", ""),
            (b"short question", "n"),
        ):
            while wanted not in seen:
                seen += os.read(leader, 1024)
            os.write(leader, answer.encode() + b"\n")
        assert kimi.wait(20) == 0
        os.close(leader)
    assert b"sk-unseen" not in seen
    assert 'api_key = "sk-unseen"' in (place.share / "config.toml").read_text()


def test_setup_writes_to_another_configuration_file(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"unknown": [1]}')
    where = ("--config-file", str(other), "setup")
    place.environ = {"MY_KEY": "sk-to-be-removed"}
    assert place.run(*where, "--provider", "deepseek", "--api-key-env", "MY_KEY").returncode == 0
    assert "sk-to-be-removed" in other.read_text()
    assert '"unknown": [\n    1\n  ]' in other.read_text()
    assert place.run(*where, "--remove-key").returncode == 0
    assert "sk-to-be-removed" not in other.read_text()
    assert not (place.share / "config.toml").exists()
    refused = place.run("--config", "{}", "setup", "--provider", "ollama", "--model", "m")
    assert refused.returncode == 2
    assert b"use --config-file" in refused.stderr
