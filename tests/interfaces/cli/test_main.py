"""The command as a process: statuses, texts, streams (runtime spec 1, 2.6)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.flags import Flags
from kimi.interfaces.cli.app import run
from kimi.interfaces.version import __version__
from tests.support.program.command import Finished, environment, kimi

SECRET = "sk-1234567890"
ONE_MODEL: dict[str, Any] = {
    "default_model": "m",
    "providers": {"p": {"type": "kimi", "base_url": "http://127.0.0.1:9/v1", "api_key": SECRET}},
    "models": {"m": {"provider": "p", "model": "m-1", "max_context_size": 1000}},
}


def imported(*arguments: str, share: Path) -> set[str]:
    """The modules that `kimi` with these arguments imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kimi", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment(share),
        timeout=30,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


# --- version, help, info ---------------------------------------------------------------------------------------


@pytest.mark.spec("R-01")
@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_without_loading_the_program(tmp_path: Path, option: str) -> None:
    done = kimi(option, share=tmp_path)
    assert (done.code, done.stdout, done.stderr) == (0, f"kimi, version {__version__}\n", "")
    ours = {name for name in imported(option, share=tmp_path) if name.partition(".")[0] == "kimi"}
    assert ours <= {"kimi", "kimi.interfaces", "kimi.interfaces.main", "kimi.interfaces.version"}
    foreign = {name.partition(".")[0] for name in imported(option, share=tmp_path)}
    assert not foreign & {"typer", "pydantic", "anyio", "httpx", "aiohttp", "openai", "dependency_injector", "asyncio"}


@pytest.mark.parametrize("arguments", [("--version",), ("info",), ("info", "--json")])
def test_an_answer_that_cannot_be_written_is_one_sentence(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kimi", *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"The answer cannot be written: No space left on device.\n"


def test_the_version_is_printed_among_other_options_too(tmp_path: Path) -> None:
    done = kimi("--debug", "--version", "--wire", "--print", share=tmp_path)
    assert (done.code, done.stdout, done.stderr) == (0, f"kimi, version {__version__}\n", "")


COMMANDS = [
    *("info", "demo", "doctor", "export", "login", "logout", "migrate"),
    *("acp", "setup", "mcp", "term", "plugin", "web", "vis"),
    *("__background-task-worker", "__web-worker"),
    *(f"mcp {name}" for name in ("add", "remove", "list", "auth", "reset-auth", "test", "get", "enable", "disable")),
]


@pytest.mark.spec("R-02", "R-23")
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_available_for_every_command(tmp_path: Path, option: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = kimi(option, share=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: kimi [OPTIONS] [COMMAND [ARGS]...]\n")
    assert "--no-thinking" in done.stdout
    assert "Deprecated: the same as 'kimi acp'." in " ".join(done.stdout.split())
    assert run([option, "--session"]) == 0
    assert capfd.readouterr().out.startswith("Usage: kimi [OPTIONS]")
    for command in COMMANDS:
        assert run([*command.split(), option]) == 0
        out, err = capfd.readouterr()
        assert out.startswith(f"Usage: kimi {command} [OPTIONS]")
        assert err == ""


@pytest.mark.spec("R-06", "W-36")
@pytest.mark.parametrize("arguments", [("info", "--json"), ("--verbose", "info", "--json")])
def test_info_prints_json(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = kimi(*arguments, share=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout) == {
        "kimi_cli_version": __version__,
        "agent_spec_versions": ["1"],
        "wire_protocol_version": "1.10",
        "python_version": ".".join(str(part) for part in sys.version_info[:3]),
    }
    assert [int(part) for part in __version__.split(".")] >= [0, 82]


@pytest.mark.spec("R-07")
@pytest.mark.parametrize("arguments", [("info",), ("--verbose", "info")])
def test_info_prints_readable_text(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = kimi(*arguments, share=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    labels = [line.partition(": ")[0] for line in done.stdout.splitlines()]
    assert labels == ["kimi-cli version", "agent spec versions", "wire protocol", "python version"]


@pytest.mark.spec("T-141")
@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("info",), ("info", "--json"), ("--debug", "info")])
def test_small_commands_import_no_container_and_no_mcp_library(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    packages = {name.partition(".")[0] for name in imported(*arguments, share=tmp_path)}
    assert not packages & {"fastmcp", "mcp", "dependency_injector", "rich"}


# --- misuse ----------------------------------------------------------------------------------------------------

NEXT_TO_WIRE = [
    (("--print",), "--print: Cannot combine --print, --wire."),
    (("--acp",), "--acp: Cannot combine --acp, --wire."),
    (("--print", "--acp"), "--print: Cannot combine --print, --acp, --wire."),
    (("--quiet",), "--quiet: Quiet mode cannot be combined with ACP or Wire UI"),
    (("--input-format", "text"), "--input-format: Input format is only supported for print UI"),
    (("--output-format", "text"), "--output-format: Output format is only supported for print UI"),
    (
        ("--final-message-only",),
        "--final-message-only: Final-message-only output is only supported for print UI",
    ),
    (("--session",), "--session: --session without a session ID is only supported for shell UI"),
]

FOUND_AT_START = [
    (("--continue",), "--continue: No previous session found for the working directory"),
    (("--config", "a b"), "--config: Invalid configuration text: Expecting value"),
    (("--config", "null"), "--config: Invalid configuration text: the configuration must be an object"),
    (("--mcp-config", "{"), "--mcp-config: Invalid JSON: "),
    (("--mcp-config-file", "FILE"), "--mcp-config-file: Invalid JSON: "),
]

MISUSES = [
    (("--acp", "--print"), "--print: Cannot combine --print, --acp."),
    (("--agent", "okabe", "--agent-file", "FILE"), "--agent: Cannot combine --agent, --agent-file."),
    (("--session", "x", "--continue"), "--continue: Cannot combine --continue, --session."),
    (("--session", "--continue"), "--continue: Cannot combine --continue, --session."),
    (("--config", "{}", "--config-file", "FILE"), "--config: Cannot combine --config, --config-file."),
    (("--quiet", "--acp"), "--quiet: Quiet mode cannot be combined with ACP or Wire UI"),
    (("--quiet", "--output-format", "stream-json"), "--quiet: Quiet mode implies `--output-format text`"),
    (("--print", "-p", ""), "--prompt: Prompt cannot be empty"),
    (("--wire", "-p", " \n"), "--prompt: Prompt cannot be empty"),
    (("--output-format", "stream-json"), "--output-format: Output format is only supported for print UI"),
    (("--print", "--session"), "--session: --session without a session ID is only supported for shell UI"),
    (("--wire", "--config", " "), "--config: Config cannot be empty"),
    (("--work-dir", "/nonexistent"), "'--work-dir'"),
    (("--config-file", "/nonexistent"), "'--config-file'"),
    (("--agent-file", "/nonexistent"), "'--agent-file'"),
    (("--skills-dir", "FILE"), "'--skills-dir'"),
    (("--agent", "nobody"), "'--agent'"),
    (("--max-steps-per-turn", "0"), "'--max-steps-per-turn'"),
    (("--max-retries-per-step", "x"), "'--max-retries-per-step'"),
    (("--max-ralph-iterations", "-2"), "'--max-ralph-iterations'"),
]


def assert_refused(arguments: tuple[str, ...], report: str, share: Path) -> None:
    """`kimi` with `arguments` ends with status 2, nothing on stdout, and the report in a box on stderr."""
    assert_refusal(kimi(*arguments, share=share), report)


def assert_refusal(done: Finished, report: str) -> None:
    assert (done.code, done.stdout) == (2, "")
    usage, hint, box, *_ = done.stderr.splitlines()
    assert usage == "Usage: kimi [OPTIONS] [COMMAND [ARGS]...]"
    assert hint == "Try 'kimi -h' for help."
    assert box.startswith("╭─ Error ─")
    assert report in done.message


@pytest.fixture
def parse(capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Runs a command line in this process, as far as it goes without starting an agent: it must not."""

    def never(flags: Flags) -> int:
        raise AssertionError(f"{flags} were accepted")

    def parsed(*arguments: str) -> Finished:
        code = run(arguments, never)
        captured = capfd.readouterr()
        return Finished(code, captured.out, captured.err)

    return parsed


@pytest.mark.spec("R-04", "W-34")
def test_every_misuse_is_refused_with_its_text(tmp_path: Path, parse: Callable[..., Finished]) -> None:
    (tmp_path / "FILE").write_text("{")
    misuses = MISUSES + [(("--wire", *arguments), report) for arguments, report in NEXT_TO_WIRE]
    for arguments, report in misuses:
        line = [str(tmp_path / "FILE") if argument == "FILE" else argument for argument in arguments]
        assert_refusal(parse(*line), f"Error Invalid value for {report}")
    for arguments, report in FOUND_AT_START:
        line = [str(tmp_path / "FILE") if argument == "FILE" else argument for argument in arguments]
        assert_refused(("--wire", *line), f"Error Invalid value for {report}", tmp_path)
    assert_refusal(parse("--nope"), "Error No such option: --nope")
    assert_refusal(parse("nope"), "Error No such command 'nope'.")
    assert_refusal(parse("--model"), "requires an argument")
    assert_refused(("--wire", "--print"), "Error Invalid value for --print: Cannot combine --print, --wire.", tmp_path)


@pytest.mark.spec("R-08")
def test_unknown_or_omitted_commands_are_refused(tmp_path: Path, parse: Callable[..., Finished]) -> None:
    assert_refused(("fix the tests",), "No such command 'fix the tests'.", tmp_path)
    assert_refusal(parse("--ui", "shell"), "No such option: --ui")
    for command in ("term", "vis", "__web-worker"):
        assert_refusal(parse(command, "--port", "1", "x"), f"'kimi {command}' is not provided")
    worker = "__background-task-worker"
    assert_refusal(parse(worker, "--any", "x"), f"'kimi {worker}' is not part of this version")


def test_error_box_is_drawn_in_ascii_if_required_by_the_encoding(tmp_path: Path) -> None:
    done = kimi("--nope", share=tmp_path, variables={"PYTHONIOENCODING": "ascii"})
    assert done.code == 2
    assert done.stderr.isascii()
    assert "+- Error -" in done.stderr


# --- failures --------------------------------------------------------------------------------------------------


def assert_failed(arguments: tuple[str, ...], report: str, share: Path, **variables: str) -> None:
    """`kimi --wire` ends with status 1, the message first and the way on after it, and reads nothing of stdin."""
    done = kimi("--wire", *arguments, share=share, variables=variables, stdin='{"jsonrpc": "2.0"}\n')
    assert (done.code, done.stdout) == (1, "")
    message, log, debug = done.stderr.splitlines()
    assert message.startswith(report)
    assert str(share / "logs" / "kimi.log") in log
    assert "--debug" in debug
    assert SECRET not in done.stderr


@pytest.mark.spec("R-41")
@pytest.mark.parametrize(
    ("name", "content", "report"),
    [
        ("c.json", "{", "Invalid JSON in configuration file {path}: "),
        ("c.toml", "a b", "Invalid TOML in configuration file {path}: "),
        (
            "c.json",
            json.dumps({**ONE_MODEL, "models": {"m": {**ONE_MODEL["models"]["m"], "capabilities": ["sings"]}}}),
            "Invalid configuration file {path}: models.m.capabilities.0: ",
        ),
        ("c.json", '{"default_model": "X"}', "Invalid configuration file {path}: default_model: Default model X not"),
        (
            "c.json",
            json.dumps({**ONE_MODEL, "providers": {}}),
            "Invalid configuration file {path}: models.m.provider: Provider p not found in providers",
        ),
        ("c.json", "null", "Invalid configuration file {path}: the configuration must be an object"),
    ],
)
def test_bad_configuration_is_reported_with_path_and_rule(tmp_path: Path, name: str, content: str, report: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert_failed(("--config-file", str(file)), report.format(path=file), tmp_path)
    text = "--config: Invalid configuration text: " + report.partition("{path}: ")[2]
    assert_refused(("--wire", "--config", content), text, tmp_path)
    legacy = tmp_path / "share"
    legacy.mkdir()
    (legacy / "config.json").write_text(content)
    if name == "c.json":
        report = report.replace("configuration file {path}", "legacy configuration file")
        assert_failed((), report, legacy)


def test_a_bad_default_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("default_thinking = 7")
    assert_failed((), f"Invalid configuration file {tmp_path / 'config.toml'}: default_thinking: ", tmp_path)


@pytest.mark.spec("R-05", "W-33")
def test_debug_adds_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("a b")
    assert_failed((), "Invalid TOML in configuration file", tmp_path)
    done = kimi("--wire", "--debug", share=tmp_path)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith("Invalid TOML in configuration file")
    assert "Traceback (most recent call last):" in done.stderr
    assert "The log is in" not in done.stderr


@pytest.mark.spec("R-44")
@pytest.mark.parametrize("variable", ["KIMI_MODEL_MAX_CONTEXT_SIZE", "KIMI_MODEL_TEMPERATURE", "KIMI_MODEL_TOP_P"])
def test_a_variable_that_is_no_number_ends_the_start(tmp_path: Path, variable: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ONE_MODEL))
    assert_failed((), f"The environment variable {variable} must be a ", tmp_path, **{variable: "lots"})
    assert "'lots'" in kimi("--wire", share=tmp_path, variables={variable: "lots"}).stderr


@pytest.mark.spec("R-45")
def test_an_unknown_model_ends_the_start_with_the_known_names(tmp_path: Path) -> None:
    models = dict.fromkeys(("m", "large", "small"), ONE_MODEL["models"]["m"])
    (tmp_path / "config.json").write_text(json.dumps({**ONE_MODEL, "models": models}))
    assert_failed(("--model", "nope"), "Unknown model 'nope' for --model; choose one of: large, m, small.", tmp_path)
    done = kimi("--print", "--model", "nope", "-p", "x", share=tmp_path)
    assert done.code == 1
    assert done.stderr.startswith("Unknown model 'nope'")


# --- commands --------------------------------------------------------------------------------------------------


def test_account_login_is_not_provided(tmp_path: Path) -> None:
    command = "login"
    done = kimi(command, share=tmp_path)
    assert (done.code, done.stdout) == (1, "")
    assert "`kimi setup`" in done.stderr.replace("'", "`")
    assert done.stderr.count("\n") == 1
    as_json = kimi(command, "--json", share=tmp_path)
    assert (as_json.code, as_json.stderr) == (1, "")
    assert json.loads(as_json.stdout) == {"type": "error", "message": done.stderr.strip()}


def test_small_commands_leave_the_share_directory_alone(tmp_path: Path) -> None:
    for arguments in (("--version",), ("--help",), ("info",), ("login",), ("vis",), ("--wire", "--print")):
        kimi(*arguments, share=tmp_path / "share")
    assert not (tmp_path / "share").exists()
