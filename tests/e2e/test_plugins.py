"""Plugins and built-in skills through the real process (tools spec 3.18, runtime spec 7.3)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from kimi.infrastructure.definitions.skill_files import BUILTIN_SKILLS
from tests.support.plugins.plugin_directories import SKILL, with_tool, write_plugin
from tests.support.program.processes import comes_true, marked
from tests.support.program.terminal import ENTER, terminal
from tests.support.program.wire_process import Json, Place, WireProcess, approval, approve
from tests.support.providers.scripts import call, shell, step

GREET = step("text: calling", call("c1", "greet", {"name": "Ada"}))


def result(kimi: WireProcess) -> Json:
    """The result of the last tool call."""
    return kimi.payloads("ToolResult")[-1]["return_value"]


@pytest.mark.spec("T-145")
def test_a_plugins_tool_runs_in_its_directory_after_a_question(place: Place) -> None:
    plugin = write_plugin(place.share / "plugins")
    place.script(GREET, "text: done")
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("greet her", approve)["result"] == {"status": "finished"}
        [asked] = kimi.payloads("ApprovalRequest")
        assert (asked["action"], asked["description"]) == ("plugin:greet", "Run plugin tool `greet`.")
        assert asked["display"] == [{"type": "brief", "text": 'hello: {"name": "Ada"}'}]
        assert result(kimi)["output"] == f"hello Ada from {os.path.realpath(plugin)}\n"
        assert not result(kimi)["is_error"]


@pytest.mark.spec("T-146")
def test_approval_for_the_session_holds_for_one_tool_of_one_plugin(place: Place) -> None:
    write_plugin(place.share / "plugins", tools=[with_tool(), with_tool(name="wave")])
    wave = step("text: calling", call("c2", "wave", {"name": "Ada"}))
    place.script(GREET, GREET.replace("c1", "c3"), wave, "text: done")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("greet", lambda params: approval(params, "approve_for_session"))
        assert [asked["action"] for asked in kimi.payloads("ApprovalRequest")] == ["plugin:greet", "plugin:wave"]
    state = json.loads((place.session_dirs()[-1] / "state.json").read_text(encoding="utf-8"))
    assert set(state["approval"]["auto_approve_actions"]) == {"plugin:hello/greet", "plugin:hello/wave"}


@pytest.mark.spec("T-146")
@pytest.mark.parametrize("decision", ["deny", "allow", "ask"])
def test_rules_decide_on_the_tools_of_plugins(place: Place, decision: str) -> None:
    write_plugin(place.share / "plugins")
    place.config = f'\n[[approval.rules]]\ndecision = "{decision}"\naction = "plugin:*"\nmatch = "hello/*"\n'
    place.script(GREET, "text: done")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("greet her", approve)
        assert len(kimi.payloads("ApprovalRequest")) == (decision == "ask")
        assert result(kimi)["is_error"] == (decision == "deny")


@pytest.mark.spec("T-145")
def test_the_commands_of_plugins_get_no_keys_of_providers(place: Place) -> None:
    shows = "import os\nprint(sorted(os.environ.items()))\n"
    write_plugin(place.share / "plugins", script=shows)
    place.environ["KIMI_API_KEY"] = "sk-planted"
    place.script(GREET, "text: done")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("greet her")
        assert "PATH" in result(kimi)["output"]
        assert "sk-planted" not in result(kimi)["output"]


@pytest.mark.spec("T-145")
@pytest.mark.parametrize("ending", ["end_input", "kill"])
def test_a_plugins_command_and_its_children_end_with_the_program(place: Place, tmp_path: Path, ending: str) -> None:
    started = tmp_path / "started"
    script = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open({str(started)!r}, "w").close()
time.sleep(600)
"""
    write_plugin(place.share / "plugins", script=script)
    word = f"plugin-mark-{os.getpid()}-{ending}"
    place.environ["MARK"] = word
    place.script(GREET, "text: done")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.call("prompt", {"user_input": "greet"})
        assert comes_true(started.exists, 20)
        assert len(marked(word)) >= 2
        if ending == "kill":
            os.kill(kimi.process.pid, signal.SIGKILL)
        else:
            kimi.end_input()
        kimi.wait()
        assert comes_true(lambda: not marked(word), 20), marked(word)


@pytest.mark.spec("T-145")
def test_a_cancelled_turn_ends_the_command_of_a_plugin(place: Place, tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(600)\n"
    write_plugin(place.share / "plugins", script=script)
    place.environ["MARK"] = word = f"plugin-cancelled-{os.getpid()}"
    place.script(GREET, "text: done")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        before = set(marked(word))
        prompt = kimi.call("prompt", {"user_input": "greet"})
        assert comes_true(started.exists, 20)
        kimi.call("cancel")
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
        tools = Path("scripts/tool.py").name
        left = (pid for pid in set(marked(word)) - before)
        assert not any(tools in Path(f"/proc/{pid}/cmdline").read_text() for pid in left)


@pytest.mark.spec("T-147")
def test_a_broken_plugin_costs_a_line_of_the_log_and_nothing_else(place: Place) -> None:
    write_plugin(place.share / "plugins")
    write_plugin(place.share / "plugins", "torn")
    (place.share / "plugins/torn/plugin.json").write_text("{", encoding="utf-8")
    place.script(GREET, "text: done")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("greet her")
        assert not result(kimi)["is_error"]
    log = (place.share / "logs/kimi.log").read_text(encoding="utf-8")
    [line] = [line for line in log.splitlines() if "torn" in line]
    assert "The plugin 'torn' cannot be used: its plugin.json is no JSON" in line


@pytest.mark.spec("R-300")
def test_the_skill_of_a_plugin_is_listed_and_read_without_a_question(place: Place) -> None:
    plugin = write_plugin(place.share / "plugins", tools=[])
    (plugin / "SKILL.md").write_text(SKILL, encoding="utf-8")
    place.config = '\n[files]\nread_outside = "ask"\n'
    place.script(call("c1", "ReadFile", {"path": str(plugin / "SKILL.md")}), "text: read")
    with place.wire() as kimi:
        commands = {command["name"] for command in kimi.initialize()["slash_commands"]}
        assert "skill:greeting" in commands
        kimi.prompt("how do we greet?")
        assert "Use the tool `greet`." in result(kimi)["output"]
    assert f"- greeting\n  - Path: {plugin}/SKILL.md\n" in place.context()[0]["content"]


@pytest.mark.spec("R-301")
def test_the_file_with_the_keys_of_a_plugin_is_never_read(place: Place) -> None:
    plugin = write_plugin(place.share / "plugins", config_file="config.json", inject={"key": "api_key"})
    (plugin / "config.json").write_text('{"key": "sk-planted"}', encoding="utf-8")
    read = [call("c1", "ReadFile", {"path": str(plugin / name)}) for name in ("config.json", "plugin.json")]
    place.script(*read, "text: done")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.prompt("read")
        secret, plain = [payload["return_value"] for payload in kimi.payloads("ToolResult")]
        assert secret["is_error"]
        assert "sk-planted" not in json.dumps(secret)
        assert not plain["is_error"]
    assert (plugin / "config.json").read_text(encoding="utf-8") == '{"key": "sk-planted"}'  # nothing was handed over


@pytest.mark.spec("R-301")
def test_a_confined_plugin_reads_its_keys_and_commands_do_not(place: Place) -> None:
    tool = with_tool(command=["/bin/sh", "-c", "pwd; cat config.json; echo written > ~/written"])
    plugin = write_plugin(place.share / "plugins", tools=[tool], config_file="config.json")
    (plugin / "config.json").write_text("sk-planted", encoding="utf-8")
    place.script(GREET, shell("c2", f"cat {plugin}/plugin.json {plugin}/config.json"), "text: done")
    with place.wire("--yolo", "--sandbox", "workspace") as kimi:
        kimi.initialize()
        kimi.prompt("greet her")
        own, other = [payload["return_value"] for payload in kimi.payloads("ToolResult")]
    assert own["output"] == f"{os.path.realpath(plugin)}\nsk-planted"
    assert own["is_error"]
    assert not (place.home / "written").exists()
    assert "Says hello" in other["output"]
    assert "sk-planted" not in other["output"]


@pytest.mark.spec("R-302")
@pytest.mark.parametrize("name", BUILTIN_SKILLS)
def test_a_model_sees_the_builtin_skills_and_reads_them_unasked(place: Place, name: str) -> None:
    place.config = '\n[files]\nread_outside = "ask"\n'
    place.script("text: ok")
    with place.wire() as kimi:
        commands = {command["name"] for command in kimi.initialize()["slash_commands"]}
        assert f"skill:{name}" in commands
        kimi.prompt("hello")
    prompt = str(place.context()[0]["content"])
    path = Path(prompt.split(f"- {name}\n  - Path: ")[1].split("\n")[0])
    place.script(call("c1", "ReadFile", {"path": str(path)}), "text: read")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("read it")
        assert not result(kimi)["is_error"]
        assert f"name: {name}" in result(kimi)["output"]


@pytest.mark.spec("R-303")
def test_the_pages_that_the_help_skill_names_are_read_unasked(place: Place) -> None:
    place.config = '\n[files]\nread_outside = "ask"\n'
    place.script("text: ok")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("hello")
    prompt = str(place.context()[0]["content"])
    skill = Path(prompt.split("- kimi-cli-help\n  - Path: ")[1].split("\n")[0]).parent
    pages = skill / "pages" if (skill / "pages").exists() else skill / "../../../../../../docs"
    place.script(
        call("c1", "ReadFile", {"path": str(pages / "plugins.md")}),
        call("c2", "Grep", {"pattern": "plugin.json", "path": str(pages)}),
        "text: read",
    )
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("read it")
        read, found = [payload["return_value"] for payload in kimi.payloads("ToolResult")]
        assert "# Plugins" in read["output"]
        assert "plugins.md" in found["output"]


@pytest.mark.spec("R-305")
@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_on_a_terminal_the_user_is_asked(place: Place, answer: str) -> None:
    source = write_plugin(place.root)
    with terminal(place, "plugin", "install", str(source)) as shown:
        text = shown.until("Install the plugin 'hello'? [y/N]:")
        assert "tool greet: runs" in text
        shown.type(answer, ENTER)
        assert shown.wait() == (0 if answer == "y" else 1)
    assert (place.share / "plugins/hello/plugin.json").exists() == (answer == "y")


@pytest.mark.spec("R-308")
def test_the_welcome_and_doctor_say_which_plugin_cannot_be_used(place: Place) -> None:
    write_plugin(place.share / "plugins")
    write_plugin(place.share / "plugins", "torn").joinpath("plugin.json").unlink()
    place.script("text: hello")
    with terminal(place) as shown:
        shown.until("The plugin 'torn' cannot be used: it has no plugin.json.")
    checks = json.loads(place.run("doctor", "--json").stdout)["checks"]
    [finding] = [check for check in checks if check["name"] == "plugins"]
    assert finding["status"] == "warning"
    assert finding["message"] == "The plugin 'torn' cannot be used: it has no plugin.json."
    (place.share / "plugins/torn").rename(place.root / "torn")
    checks = json.loads(place.run("doctor", "--json").stdout)["checks"]
    assert [check["message"] for check in checks if check["name"] == "plugins"] == ["1 installed, with 1 tools."]
