"""Options, aliases and their defaults (runtime spec 1.2), parsed in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.flags import Flags, share_directory
from kimi.interfaces.cli.app import run
from kimi.interfaces.cli.options import with_session_value


def parsed(*arguments: str) -> Flags:
    """What the command line hands on; it must not be refused."""
    seen: list[Flags] = []

    def start(flags: Flags) -> int:
        seen.append(flags)
        return 0

    assert run(arguments, start) == 0
    return seen[0]


def changed(flags: Flags) -> dict[str, Any]:
    """The fields that differ from a command line without options."""
    plain = everything(Flags(work_dir=os.getcwd()))
    return {name: value for name, value in everything(flags).items() if value != plain[name]}


def everything(flags: Flags) -> dict[str, Any]:
    """All fields by their names."""
    return {name: getattr(flags, name) for name in Flags.__slots__}


SWITCHES: list[tuple[str, dict[str, Any]]] = [
    ("--verbose", {"verbose": True}),
    ("--debug", {"debug": True}),
    ("--continue", {"continue_last": True}),
    ("-C", {"continue_last": True}),
    ("--thinking", {"thinking": True}),
    ("--no-thinking", {"thinking": False}),
    ("--yolo", {"yolo": True}),
    ("--yes", {"yolo": True}),
    ("-y", {"yolo": True}),
    ("--auto-approve", {"yolo": True}),
    ("--plan", {"plan": True}),
    ("--afk", {"afk": True}),
    ("--print", {"ui": "print"}),
    ("--acp", {"ui": "acp"}),
    ("--wire", {"ui": "wire"}),
    ("--quiet", {"ui": "print", "final_message_only": True}),
]

VALUES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("--config", " {} "), {"config": "{}"}),
    (("--model", "m"), {"model": "m"}),
    (("-m", "m"), {"model": "m"}),
    (("--prompt", " do it "), {"ui": "print", "prompt": "do it"}),
    (("-p", "do it"), {"ui": "print", "prompt": "do it"}),
    (("--command", "do it"), {"ui": "print", "prompt": "do it"}),
    (("-c", "do it"), {"ui": "print", "prompt": "do it"}),
    (("--agent", "okabe"), {"agent": "okabe"}),
    (("--mcp-config", "{}", "--mcp-config", "[]"), {"mcp_configs": ("{}", "[]")}),
    (("--max-steps-per-turn", "1"), {"max_steps_per_turn": 1}),
    (("--max-retries-per-step", "2"), {"max_retries_per_step": 2}),
    (("--max-ralph-iterations", "-1"), {"max_ralph_iterations": -1}),
    (("--print", "--input-format", "stream-json"), {"ui": "print", "input_format": "stream-json"}),
    (("--print", "--output-format", "stream-json"), {"ui": "print", "output_format": "stream-json"}),
    (("--print", "--output-format", "text"), {"ui": "print"}),
    (("--print", "--final-message-only"), {"ui": "print", "final_message_only": True}),
    (("--quiet", "--output-format", "text"), {"ui": "print", "final_message_only": True}),
    (("--wire", "--no-slash-commands"), {"ui": "wire", "no_slash_commands": True}),
    (("-p", "x", "--output-format", "text"), {"ui": "print", "prompt": "x"}),
    (("-p", "x", "--final-message-only"), {"ui": "print", "prompt": "x", "final_message_only": True}),
    (("-p", "x", "--wire"), {"ui": "wire", "prompt": "x"}),
    (("-r", "id", "--here"), {"session": "id", "must_exist": True, "here": True}),
    (("--quiet", "--print"), {"ui": "print", "final_message_only": True}),
]


@pytest.mark.spec("R-03")
def test_every_option_and_alias_is_accepted(tmp_path: Path) -> None:
    assert changed(parsed()) == {}
    assert {name: value for name, value in everything(parsed()).items() if value not in (None, False, ())} == {
        "work_dir": os.getcwd(), "ui": "shell", "input_format": "text", "output_format": "text",
    }  # fmt: skip
    for switch, fields in SWITCHES:
        assert changed(parsed(switch)) == fields, switch
    for arguments, fields in VALUES:
        assert changed(parsed(*arguments)) == fields, arguments
    directory, file = str(tmp_path), str(tmp_path / "file")
    (tmp_path / "file").write_text("")
    for arguments, fields in [
        (("--work-dir", directory), {"work_dir": directory}),
        (("-w", directory), {"work_dir": directory}),
        (("--add-dir", directory, "--add-dir", "/"), {"add_dirs": (directory, "/")}),
        (("--config-file", file), {"config_file": file}),
        (("--agent-file", file), {"agent_file": file}),
        (("--mcp-config-file", file, "--mcp-config-file", file), {"mcp_config_files": (file, file)}),
        (("--skills-dir", directory, "--skills-dir", "/"), {"skills_dirs": (directory, "/")}),
    ]:
        assert changed(parsed(*arguments)) == fields, arguments


PICKER: dict[str, Any] = {"pick_session": True}


@pytest.mark.spec("R-11")
@pytest.mark.parametrize("option", ["--session", "--resume", "-S", "-r"])
def test_the_value_of_the_session_option_may_be_left_out(option: str) -> None:
    chosen: dict[str, Any] = {"session": "id-1"} | ({"must_exist": True} if option in ("--resume", "-r") else {})
    assert changed(parsed(option, "id-1")) == chosen
    assert changed(parsed(option)) == PICKER
    assert changed(parsed(option, "--yolo")) == {**PICKER, "yolo": True}
    assert changed(parsed("--yolo", option, "-m", "x")) == {**PICKER, "yolo": True, "model": "x"}
    assert changed(parsed(option, "")) == PICKER
    assert changed(parsed(option, " \t")) == PICKER
    assert changed(parsed(option, "id-1", "--wire")) == {**chosen, "ui": "wire"}
    assert changed(parsed("-m", option, "--yolo")) == {"model": option, "yolo": True}


def test_session_option_accepts_other_spellings() -> None:
    assert changed(parsed("--session=id-1")) == {"session": "id-1"}
    assert changed(parsed("--session=")) == PICKER
    assert changed(parsed("-Sid-1")) == {"session": "id-1"}
    assert changed(parsed("-yS", "id-1")) == {"session": "id-1", "yolo": True}
    assert changed(parsed("-yS")) == {**PICKER, "yolo": True}


def test_arguments_after_the_command_are_unchanged() -> None:
    switches = frozenset({"--yolo"})
    assert with_session_value(["info", "--session"], switches) == ["info", "--session"]
    assert with_session_value(["--yolo", "--", "--session"], switches) == ["--yolo", "--", "--session"]
    assert with_session_value(["-m", "info", "--session"], switches) == ["-m", "info", "--session", ""]


@given(st.lists(st.text(alphabet="-Srym =x", max_size=6)))
def test_completing_the_line_only_adds_empty_values(arguments: list[str]) -> None:
    done = with_session_value(arguments, frozenset({"-y", "--yolo"}))
    assert [argument for argument in done if argument] == [argument for argument in arguments if argument]
    assert with_session_value(done, frozenset({"-y", "--yolo"})) == done


def test_last_of_repeated_options_wins() -> None:
    assert changed(parsed("-m", "a", "-m", "b", "--thinking", "--no-thinking")) == {"model": "b", "thinking": False}


def test_node_sdk_arguments_are_parsed(tmp_path: Path) -> None:
    agent = tmp_path / "agent.yaml"
    agent.write_text("")
    arguments = ["--session", "id-1", "--work-dir", str(tmp_path), "--wire", "--model", "m", "--no-thinking", "--yolo"]
    assert changed(parsed(*arguments, "--agent-file", str(agent), "--skills-dir", str(tmp_path))) == {
        "session": "id-1",
        "work_dir": str(tmp_path),
        "ui": "wire",
        "model": "m",
        "thinking": False,
        "yolo": True,
        "agent_file": str(agent),
        "skills_dirs": (str(tmp_path),),
    }


def test_a_work_dir_behind_a_symlink_keeps_the_given_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    assert parsed("--work-dir", f"{link}/../link/.").work_dir == str(link)


@pytest.mark.parametrize("id_", ["../x", "a/b", "a\\b", ".", "..", "x" * 129])
def test_a_session_id_that_could_leave_the_store_is_refused(id_: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--wire", "--session", id_], lambda flags: pytest.fail("it was started")) == 2
    assert "Invalid value for --session: A session id" in capfd.readouterr().err


def test_share_directory_comes_from_the_environment() -> None:
    assert share_directory({"KIMI_SHARE_DIR": "/s/../t", "HOME": "/h"}) == "/t"
    assert share_directory({"KIMI_SHARE_DIR": "", "HOME": "/h"}) == "/h/.kimi"
    assert share_directory({}) == os.path.expanduser("~/.kimi")
